"""A turn that runs in a chat: its record, its runner and, at the end, its terminal event."""

from collections.abc import Sequence
from typing import Any, Protocol

import trio
from attrs import define, field

from agentsdock.backends.protocol import Envelope
from agentsdock.chats import bindings
from agentsdock.chats.authority import Authorities, Grant
from agentsdock.chats.recorder import TurnRecorder
from agentsdock.model.codes import Code
from agentsdock.model.events import Draft, Encoded
from agentsdock.model.sessions import Session
from agentsdock.model.turns import Run
from agentsdock.store.protocol import Change, PutDiff
from agentsdock.turns.ending import SUSPECT
from agentsdock.turns.runner import Differ, TurnRunner
from agentsdock.turns.verdicts import StopReason


class TurnDiffer(Differ, Protocol):
    """The ``Differ`` of one run, which keeps the patch that it made."""

    patch: bytes | None
    """Compressed; None where there is none."""

    async def close(self) -> None:
        """Remove what was noted; the turn is over."""
        ...


class TurnManifest(Protocol):
    """Hands out the files that the CLI of one run lists.  Raises nothing but a cancellation."""

    async def prepare(self) -> None:
        """Make place for the list; before there is a process."""
        ...

    async def follow(self, over: trio.Event) -> None:
        """Publish what is listed until the tree is gone, and then what is still listed."""
        ...

    def leave(self) -> None:
        """Nothing is handed out any more."""
        ...


@define(eq=False)
class LiveTurn:
    """From the claim of the run until its terminal event is durable (``ended``)."""

    runner: TurnRunner
    envelope: Envelope
    recorder: TurnRecorder
    differ: TurnDiffer
    grant: Grant
    authorities: Authorities
    manifest: TurnManifest
    version: str | None = None
    """The CLI's, as it was probed."""
    usage_is_total: bool = False
    """The CLI counts the usage of its whole session."""
    handed_out: set[bytes] = field(factory=set)
    """Marks of the files that it has published."""
    ended: trio.Event = field(factory=trio.Event)
    terminal: dict[str, Any] | None = None
    terminal_seq: int | None = None

    @property
    def run(self) -> Run:
        """As it was recorded last."""
        return self.recorder.run

    def stop(self, reason: StopReason, **meta: str) -> None:
        """What the CLI may ask of the server ends before the CLI does."""
        self._withdraw()
        self.runner.stop(reason, **meta)

    def shut_down(self) -> None:
        self._withdraw()
        self.runner.shut_down()

    def _withdraw(self) -> None:
        self.authorities.revoke(self.run.id)
        self.manifest.leave()

    @property
    def taken_up(self) -> bool:
        """Whether the CLI has begun with the message, so that its session knows of it."""
        return self.runner.machine.session_id is not None

    @property
    def ending(self) -> bool:
        """Whether its end is decided, or waits for nothing but the CLI's exit."""
        machine = self.runner.machine
        return machine.decided or machine.awaiting_exit

    def settled(self, session: Session) -> Session:
        """The session after the turn: what it used, what a success commits, what a failed resume
        leaves."""
        backend = self.run.backend
        machine = self.runner.machine
        total = machine.told_usage if self.usage_is_total else None
        session = bindings.used(session, backend, machine.usage, total)
        if machine.succeeded:
            return bindings.succeeded(session, backend, self.envelope)
        if self.terminal and self.terminal.get(SUSPECT):
            return bindings.resume_failed(session, backend)
        return session

    def told_memory(self, session: Session) -> list[Draft]:
        """That the CLI of a fork knows now what was said before it; only with a success."""
        if not (self.runner.machine.succeeded and self.envelope.used_memory):
            return []
        if not session.memory_forked:
            return []
        message = "The CLI was told what was said in the chat that was forked."
        return [Draft("history_imported", {"run_id": self.run.id, "message": message})]

    def kept(self, events: Sequence[Encoded]) -> list[Change]:
        """What is stored with the final events besides the session."""
        patch = self.differ.patch
        told = any(event.type == "code_diff" for event in events)
        return [PutDiff(self.run.id, patch)] if told and patch is not None else []

    def receipt(self) -> dict[str, Any]:
        """What a stop tells of this turn: of its end too, once that is known."""
        verdict = self.runner.machine.verdict
        terminal = self.terminal or {"stopped": verdict is not None and verdict.stopped}
        return {
            "run_id": self.run.id,
            "pending": not self.ended.is_set(),
            "outcome": "stopped" if terminal["stopped"] else "finished",
            "terminal_seq": self.terminal_seq,
            "tree_empty": terminal.get("tree_empty"),
            "processes_ended": terminal.get("processes_ended"),
            "elapsed_ms": terminal.get("elapsed_ms"),
            "rung": terminal.get("rung"),
        }


def broken_ending(run: Run, error: Exception) -> list[Draft]:
    """The last events of a run whose own could not be made."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    message = f"{type(error).__name__} in the server; the turn was ended."
    told = {
        "run_id": run.id,
        "backend": run.backend,
        "code": Code.INTERNAL_ERROR,
        "message": message,
        "exit_code": None,
        **run.meta,
    }
    ending = {"result_text": "", "stopped": False, "is_error": True, "tree_empty": None}
    return [Draft("error", told), Draft("turn_finished", {**told, **ending})]
