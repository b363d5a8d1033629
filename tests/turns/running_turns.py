"""Runs one turn over a scripted process, and keeps what would have become durable."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from scripted_differ import ScriptedDiffer
from scripted_guard import ScriptedLauncher, ScriptedProcess

from agentsdock.guard.contract import LaunchSpec
from agentsdock.logs import get_logger
from agentsdock.model.limits import TurnLimits
from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import ParserSpec
from agentsdock.turns.machine import TurnMachine
from agentsdock.turns.runner import TurnJob, TurnRunner
from agentsdock.turns.verdicts import TurnFacts

RUN = "run_00000000000000aa"
LIMITS = TurnLimits(
    startup_seconds=10,
    turn_seconds=200,
    idle_seconds=40,
    exit_seconds=5,
    approval_seconds=20,
)


class Ledger:
    """What was recorded.  ``gate`` holds each batch back, ``errors`` are raised instead."""

    def __init__(self) -> None:
        self.batches = []
        self.states = []
        self.gate: trio.Event | None = None
        self.recording = trio.Event()
        self.errors = []

    @property
    def drafts(self):
        return [draft for batch in self.batches for draft in batch]

    @property
    def types(self):
        return [draft.type for draft in self.drafts]

    @property
    def texts(self):
        return [draft.payload["text"] for draft in self.drafts if draft.type == "assistant_text"]

    async def record(self, drafts):
        self.recording.set()
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.batches.append(list(drafts))

    async def handed_over(self, process):
        await trio.lowlevel.checkpoint()
        self.states.append(("handed_over", process.pid))

    async def acknowledged(self):
        await trio.lowlevel.checkpoint()
        self.states.append("acknowledged")


class Turn:
    """A turn in the background.  ``last`` are its final drafts once ``ended`` is set."""

    def __init__(self, limits=LIMITS, *, parser=None, capsule=None, pace=None, spec=True, **facts):
        self.launcher = ScriptedLauncher()
        self.ledger = Ledger()
        self.ended = trio.Event()
        self.last = None
        facts = TurnFacts(run_id=RUN, backend="cursor", **facts)
        self.machine = TurnMachine(facts, parser or CursorParser(ParserSpec(facts.resume_id)))
        launch = LaunchSpec(("/bin/agent",), {}, "/", "marker") if spec else None
        self.differ = ScriptedDiffer()
        self.runner = TurnRunner(
            TurnJob(launch, ("agent", "-p", "<prompt>"), limits),
            self.machine,
            self.launcher,
            self.ledger,
            self.differ,
            capsule=capsule,
            pace=pace,
            log=get_logger(),
        )

    async def run(self) -> None:
        self.last = await self.runner.run()
        self.ended.set()

    async def terminal(self) -> dict:
        """The payload of the terminal event, which is the last and the only one."""
        with trio.fail_after(10_000):
            await self.ended.wait()
        kinds = [draft.type for draft in (*self.ledger.drafts, *self.last)]
        assert kinds.count("turn_finished") == 1
        assert kinds[-1] == "turn_finished"
        assert self.launcher.all_closed
        return self.last[-1].payload

    async def code(self) -> str | None:
        return (await self.terminal())["code"]

    @property
    def process(self) -> ScriptedProcess:
        return self.launcher.launched[-1]


@asynccontextmanager
async def running(limits=LIMITS, **options) -> AsyncIterator[Turn]:
    """A turn whose process was launched; the test plays the CLI."""
    turn = Turn(limits, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run)
        await turn.launcher.next()
        yield turn
        nursery.cancel_scope.cancel()
