"""A parser that says what a test wants it to say, and short ways to drive a machine."""

from agentsdock.guard.contract import Report
from agentsdock.streams.neutral import (
    Fault,
    Init,
    Result,
    StreamEvent,
    StreamFacts,
    Text,
    ToolFinished,
    ToolStarted,
)
from agentsdock.turns.machine import TurnEnd, TurnFacts, TurnMachine

RUN = "run_00000000000000aa"
INIT = Init("chat-1")
HELLO = Text("hello", 5)


class ScriptedParser:
    """Each byte fed is one event of the script; a fault ends it, as a parser's contract asks."""

    def __init__(self, events: list[StreamEvent], at_end: list[StreamEvent] = ()) -> None:
        self.events = list(events)
        self.at_end = list(at_end)
        self.facts = StreamFacts()
        self.broken = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        self.facts = StreamFacts(self.facts.lines + len(data), self.facts.bytes + len(data))
        return self._until_fault([self.events.pop(0) for _ in data if self.events])

    def end(self) -> list[StreamEvent]:
        events, self.at_end = self.at_end, []
        return self._until_fault(events)

    def _until_fault(self, events: list[StreamEvent]) -> list[StreamEvent]:
        said: list[StreamEvent] = []
        for event in events:
            if self.broken:
                break
            said.append(event)
            self.broken = isinstance(event, Fault)
        return said


def machine(*events: StreamEvent, at_end=(), **facts) -> TurnMachine:
    turn = TurnFacts(run_id=RUN, backend=facts.pop("backend", "cursor"), **facts)
    return TurnMachine(turn, ScriptedParser(list(events), list(at_end)))


def play(*events: StreamEvent, **options):
    """A machine that was fed all of the events, and the drafts that this gave."""
    turn = machine(*events, **options)
    return turn, turn.feed(b"." * len(events))


def report(exit_code=0, *, killed=False, **more) -> Report:
    return Report(
        exit_code=exit_code,
        killed=killed,
        processes_ended=more.pop("processes_ended", 0),
        survivors=more.pop("survivors", ()),
        elapsed_ms=3.5,
        cpu_seconds=0.25,
        max_rss_bytes=1024,
        rung="subreaper",
        **more,
    )


def end(turn: TurnMachine, exit_code=0, *, killed=False, **more):
    """Let the CLI exit after its last byte; the last drafts."""
    drafts = turn.stdout_ended() + turn.exited(exit_code, killed)
    return drafts + turn.finish(TurnEnd(report=report(exit_code, killed=killed), **more))


def cut_off(turn: TurnMachine, **more):
    """End the process because the machine has decided so; the last drafts."""
    assert turn.decided
    return turn.finish(TurnEnd(report=report(-15, killed=True), **more))


def call(call_id="c1", name="shell", timeout=None) -> ToolStarted:
    return ToolStarted(call_id, name, {"command": "ls"}, timeout)


def called(call_id="c1", outcome="ok", output="done", exit_code=0) -> ToolFinished:
    from agentsdock.streams.neutral import Outcome

    return ToolFinished(
        call_id, "shell", None, Outcome(outcome), outcome, output, exit_code, len(output)
    )


def success(text="the answer", **more) -> Result:
    return Result(is_error=False, text=text, **more)


def failure(message="it broke") -> Result:
    return Result(is_error=True, message=message)
