"""One turn on a terminal: its timeline as it happens, ctrl-C, and its verdict as a status."""

import json
import signal
import sys
import time
from types import TracebackType
from typing import Any, Self

import trio

from agentsdock.cli.timeline import Line, line_of, verdict
from agentsdock.client.errors import ApiError
from agentsdock.client.http import Accepted, Client
from agentsdock.model.events import TERMINAL_TYPES

STATUSES = {"succeeded": 0, "failed": 1, "stopped": 130}


class Printer:
    """Lines on stdout, notes on stderr.  On a terminal with colours and a line of progress."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._live: Any = None
        self._began = time.monotonic()
        self._events = 0

    def __enter__(self) -> Self:
        if sys.stdout.isatty() and not self._as_json:
            from rich.console import Console

            console = Console(highlight=False)
            self._live = console.status("waiting")
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, event: dict[str, Any]) -> None:
        self._events += 1
        if self._as_json:
            print(json.dumps(event), flush=True)
            return
        line = line_of(event)
        if line is not None:
            self._line(line)
        self._progress(event)

    def note(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, style="dim", markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def _line(self, line: Line) -> None:
        if self._live is not None:
            self._live.console.print(str(line), style=line.style, markup=False)
        else:
            print(line, flush=True)

    def _progress(self, event: dict[str, Any]) -> None:
        if self._live is None:
            return
        from rich.text import Text

        doing = event["type"].replace("_", " ")
        if event["type"] == "tool_started":
            doing = f"running {(event.get('tool') or {}).get('name')}"
        passed = time.monotonic() - self._began
        self._live.update(Text(f"{doing} · {self._events} events · {passed:.0f} s · ctrl-C stops"))


async def send_and_follow(
    client: Client, session_id: str, prompt: str, fields: dict[str, Any], printer: Printer
) -> int:
    """Send a prompt and print its timeline; returns the exit status of its verdict.

    Ctrl-C counts from before the prompt is sent, so that no turn is started and forgotten.
    """
    run = _Run()
    async with trio.open_nursery() as nursery:

        async def watch_ctrl_c() -> None:
            with trio.open_signal_receiver(signal.SIGINT) as signals:
                nursery.start_soon(follow)
                async for _ in signals:
                    if run.interrupted or run.waits:
                        run.status = STATUSES["stopped"]
                        printer.note(run.left_behind(session_id))
                        nursery.cancel_scope.cancel()
                        return
                    run.interrupted = True
                    printer.note("stopping the turn; ctrl-C once more leaves it alone")
                    run.wants_stop.set()

        async def stop_when_wanted() -> None:
            await run.accepted.wait()
            await run.wants_stop.wait()
            try:
                await client.stop(session_id)
            except ApiError as error:
                printer.note(f"the stop failed: {error}")

        async def follow() -> None:
            accepted = await client.post_turn(session_id, prompt, **fields)
            run.accept(accepted)
            nursery.start_soon(stop_when_wanted)
            after = accepted.event["seq"] - 1
            async with client.events(session_id, after=after) as events:
                async for event in events:
                    if run.concerns(event):
                        printer.event(event)
                    if run.status is not None:
                        break
                else:
                    printer.note("the chat was deleted")
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch_ctrl_c)
    return STATUSES["failed"] if run.status is None else run.status


class _Run:
    """What is known of the turn that is followed, as its events arrive."""

    def __init__(self) -> None:
        self.interrupted = False
        self.status: int | None = None
        self.accepted = trio.Event()
        self.wants_stop = trio.Event()
        self._run_id: str | None = None
        self._queued_id: str | None = None

    def accept(self, accepted: Accepted) -> None:
        self._run_id = accepted.run_id
        self._queued_id = accepted.queued_id
        self.accepted.set()

    @property
    def waits(self) -> bool:
        """Whether it is queued.  A stop would then hit the turn that runs before it."""
        return self._run_id is None and self._queued_id is not None

    def left_behind(self, session_id: str) -> str:
        if self.waits:
            row = self._queued_id
            take_out = f"agentsdock queue delete {session_id} {row}"
            return f"{row} is still in the queue and will run in its turn; {take_out}"
        return f"the turn may still be running: agentsdock stop {session_id}"

    def concerns(self, event: dict[str, Any]) -> bool:
        """Whether the event is of this turn; notes what it says about it."""
        kind = event["type"]
        if self._run_id is None:
            if event.get("queued_id") != self._queued_id:
                return False
            if kind == "turn_started":
                self._run_id = event["run_id"]
            elif kind == "turn_unqueued":
                self.status = STATUSES["failed"]
            return True
        if event.get("run_id") != self._run_id:
            return False
        if kind in TERMINAL_TYPES:
            self.status = STATUSES[verdict(event)]
        return True
