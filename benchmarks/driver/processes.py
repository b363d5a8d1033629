"""What a fake agent recorded of itself and its descendants, and whether they live."""

import asyncio
import contextlib
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import psutil

CLOCK_SLACK_SECONDS = 2.0
WATCH_SECONDS = 5.0


def find(pid: int, born: float) -> psutil.Process | None:
    """The process if it is still the one that was born then.  A zombie has ended."""
    try:
        process = psutil.Process(pid)
        if abs(process.create_time() - born) > CLOCK_SLACK_SECONDS:
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.Error:
        return None


class FakeLog:
    """The step log of one fake agent's run."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def rows(self, step: str | None = None) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        rows = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [row for row in rows if step in (None, row["step"])]

    def first(self, step: str) -> dict[str, Any] | None:
        return next(iter(self.rows(step)), None)

    def processes(self) -> dict[tuple[str, int], float]:
        """(kind, pid) to time of birth; the kind of the agent itself is ``cli``."""
        return {
            (row.get("kind", "cli"), row["pid"]): row["t"]
            for row in self.rows()
            if row["step"] in ("start", "child")
        }

    def living(self) -> list[str]:
        """Kinds of those that live."""
        return [kind for (kind, pid), born in self.processes().items() if find(pid, born)]

    def reap(self) -> None:
        """End what is left of this run: all of it was started for this measurement."""
        for (_, pid), born in self.processes().items():
            process = find(pid, born)
            if process is not None:
                with contextlib.suppress(psutil.Error):
                    process.kill()


async def until_gone(log: FakeLog, began: float) -> dict[str, Any]:
    """When the agent and all of its processes were gone, in seconds after ``began``.

    What is left after five seconds is told and not ended: one that holds the agent's stdout
    would let the server go on.
    """
    left: Mapping[tuple[str, int], float] = log.processes()
    cli: float | None = None
    while time.time() - began < WATCH_SECONDS:
        left = {key: born for key, born in left.items() if find(key[1], born)}
        passed = time.time() - began
        if cli is None and not any(kind == "cli" for kind, _ in left):
            cli = passed
        if not left:
            return {"cli": cli, "all": passed, "orphans": []}
        await asyncio.sleep(min(0.02, max(0.002, passed / 20)))
    return {"cli": cli, "all": None, "orphans": [kind for kind, _ in left]}
