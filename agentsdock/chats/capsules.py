"""Keeps the runs' recordings small: compresses finished ones, drops the oldest beyond a bound."""

import pathlib
from collections.abc import Callable

import trio

from agentsdock.config import Settings
from agentsdock.logs import get_logger
from agentsdock.turns import capsule

SETTLE_SECONDS = 2.0
"""A turn that has just ended is left alone: compressing takes a core for a moment."""

log = get_logger()


def capsule_path(state_dir: pathlib.Path, run_id: str) -> pathlib.Path:
    return state_dir / "capsules" / f"{run_id}.capsule"


class CapsuleKeeper:
    """``wake`` it when a turn has ended; ``live`` tells which recordings are being written."""

    def __init__(self, settings: Settings, live: Callable[[], set[str]]) -> None:
        self._folder = settings.state_dir / "capsules"
        self._total_bytes = settings.capsules_total_bytes
        self._live = live
        self._woken = trio.Event()
        self._woken.set()
        self._limiter = trio.CapacityLimiter(1)

    def wake(self) -> None:
        self._woken.set()

    async def keep(self) -> None:
        while True:
            await self._woken.wait()
            await trio.sleep(SETTLE_SECONDS)
            self._woken = trio.Event()
            try:
                await trio.to_thread.run_sync(
                    _tidy, self._folder, self._live(), self._total_bytes, limiter=self._limiter
                )
            except OSError as error:
                log.warning("recordings not tidied", error=str(error))


def _tidy(folder: pathlib.Path, live: set[str], total_bytes: int) -> None:
    for path in sorted(folder.glob("*.capsule")):
        if path.stem not in live:
            capsule.compress(path)
    kept = 0
    packed = sorted(folder.glob("*.capsule.gz"), key=lambda p: p.stat().st_mtime, reverse=True)
    for path in packed:
        kept += path.stat().st_size
        if kept > total_bytes:
            path.unlink(missing_ok=True)
