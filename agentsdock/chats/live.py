"""A turn that runs in a chat: its record, its runner and, at the end, its terminal event."""

from typing import Any

import trio
from attrs import define, field

from agentsdock.backends.protocol import Envelope
from agentsdock.chats.recorder import TurnRecorder
from agentsdock.model.turns import Run, RunState
from agentsdock.turns.runner import TurnRunner


@define(eq=False)
class LiveTurn:
    """From the claim of the run until its terminal event is durable (``ended``)."""

    run: Run
    runner: TurnRunner
    envelope: Envelope
    resumed: bool
    recorder: TurnRecorder
    ended: trio.Event = field(factory=trio.Event)
    terminal: dict[str, Any] | None = None
    terminal_seq: int | None = None

    @property
    def state(self) -> RunState:
        return self.recorder.run.state

    def receipt(self) -> dict[str, Any]:
        """What a stop tells of this turn; only after ``ended``."""
        terminal = self.terminal or {}
        return {
            "run_id": self.run.id,
            "outcome": "stopped" if terminal.get("stopped") else "finished",
            "terminal_seq": self.terminal_seq,
            "tree_empty": terminal.get("tree_empty"),
            "processes_ended": terminal.get("processes_ended"),
            "elapsed_ms": terminal.get("elapsed_ms"),
            "rung": terminal.get("rung"),
        }
