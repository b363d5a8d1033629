"""Any interleaving of everything that can happen to a turn: one honest ending."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scripted import HELLO, INIT, ScriptedParser, call, called, failure, report, success

from agentsdock.model.codes import Code
from agentsdock.streams.neutral import (
    Drift,
    Fault,
    Notice,
    QueryAnswered,
    QueryOpened,
    Resumed,
    Thought,
)
from agentsdock.turns.clocks import Limit
from agentsdock.turns.machine import StopReason, TurnEnd, TurnFacts, TurnMachine, Verdict

FAULTS = [Code.BAD_LINE, Code.OUTPUT_LIMIT, Code.UNKNOWN_SCHEMA, Code.APPROVAL_REQUIRED]
FAILURES = [Code.SPAWN_FAILED, Code.STORAGE_FULL, Code.MEMORY_LIMIT, Code.INTERNAL_ERROR]
TIMELINE_LOST = {Code.STORAGE_FULL, Code.INTERNAL_ERROR}
OUR_STOPS = {Code.STOPPED, Code.SERVER_SHUTDOWN}

events = st.one_of(
    st.just(HELLO),
    st.just(Thought("hm", 2)),
    st.just(Notice("retry/starting")),
    st.just(Drift("field", "x")),
    st.sampled_from("abc").map(call),
    st.tuples(st.sampled_from("abc"), st.sampled_from(["ok", "failed", "rejected"])).map(
        lambda drawn: called(*drawn)
    ),
    st.sampled_from("pq").map(lambda name: QueryOpened(name, "webFetch")),
    st.sampled_from("pq").map(QueryAnswered),
    st.just(success("text")),
    st.just(failure()),
    st.just(Resumed()),
    st.sampled_from(FAULTS).map(lambda code: Fault(code, "odd")),
)


class AnyTurn(RuleBasedStateMachine):
    @initialize(script=st.lists(events, max_size=12), at_end=st.lists(events, max_size=3))
    def begin(self, script, at_end):
        self.parser = ScriptedParser([INIT, *script] if len(script) % 5 else script, at_end)
        self.turn = TurnMachine(TurnFacts("run_00000000000000aa", "claude"), self.parser)
        self.drafts = []
        self.verdict = None
        self.decided = False
        self.spawned = False
        self.exit = None
        self.finished = False

    def take(self, drafts):
        if self.finished:
            assert drafts == []
        self.drafts += drafts or []

    @precondition(lambda self: not self.spawned)
    @rule()
    def spawn(self):
        self.spawned = True
        if not self.finished:
            self.take(self.turn.spawned(("agent",), "/w"))

    @rule(count=st.integers(1, 6))
    def bytes_arrive(self, count):
        self.take(self.turn.feed(b"." * count))

    @rule()
    def stdout_ends(self):
        self.take(self.turn.stdout_ended())

    @rule(limit=st.sampled_from(Limit))
    def limit_runs_out(self, limit):
        self.take(self.turn.limit(limit, 1.5))

    @rule(reason=st.sampled_from(StopReason))
    def someone_stops(self, reason):
        self.turn.stop(reason)

    @rule()
    def server_shuts_down(self):
        self.turn.shutdown()

    @rule(code=st.sampled_from(FAILURES))
    def we_fail(self, code):
        if self.turn.verdict == Verdict(None) and code in TIMELINE_LOST and not self.finished:
            self.verdict = None  # a success whose events could not be kept is none
        self.turn.fail(code, "our fault")

    @rule(status=st.sampled_from([0, 0, 1, -9, None]), killed=st.booleans())
    def process_exits(self, status, killed):
        self.exit = self.exit or (status, killed)
        self.take(self.turn.exited(status, killed))

    @precondition(lambda self: not self.finished)
    @rule(reported=st.booleans(), status=st.sampled_from([0, 1, -15]), killed=st.booleans())
    def turn_finishes(self, reported, status, killed):
        if reported:
            self.exit = self.exit or (status, killed)
        told = report(status, killed=killed) if reported else None
        self.take(self.turn.finish(TurnEnd(report=told, stderr_tail="oops")))
        self.finished = True

    @precondition(lambda self: self.finished)
    @rule()
    def turn_finishes_again(self):
        try:
            self.turn.finish(TurnEnd())
        except RuntimeError:
            return
        raise AssertionError("a second terminal event")

    @invariant()
    def a_verdict_once_set_stays(self):
        if not hasattr(self, "turn"):
            return
        if self.verdict is not None:
            assert self.turn.verdict is self.verdict
        self.verdict = self.turn.verdict
        assert self.turn.decided or not self.decided
        self.decided = self.turn.decided

    @invariant()
    def the_last_event_is_the_only_terminal_one(self):
        if not hasattr(self, "turn"):
            return
        terminals = [draft for draft in self.drafts if draft.type == "turn_finished"]
        assert len(terminals) == int(self.finished)
        errors = [draft for draft in self.drafts if draft.type == "error"]
        if self.finished:
            assert self.drafts[-1] is terminals[0]
            assert errors == ([self.drafts[-2]] if terminals[0].payload["is_error"] else [])
            self.honest(terminals[0].payload)
        else:
            assert errors == []

    def honest(self, last):
        assert not (last["stopped"] and last["is_error"])
        assert (last["code"] is None) == (not last["stopped"] and not last["is_error"])
        assert (last["code"] is None) == self.turn.succeeded
        assert last["stopped"] == (last["code"] in OUR_STOPS)
        assert last["code"] is None or last["result_text"] == ""
        assert last["code"] is not None or last["result_text"] == "text"
        if last["code"] is None:
            assert self.turn.result_seen
            assert self.turn.session_id is not None
            if "exit_overrun" in last:
                assert last["exit_code"] is None
            else:
                assert self.exit == (0, False)
                assert last["exit_code"] == 0
        if last["code"] == Code.NONZERO_EXIT:
            assert last["exit_code"] == self.exit[0] != 0
        if last["exit_code"] is not None:
            assert self.exit == (last["exit_code"], False)
        self.calls_add_up(last["tools"])

    def calls_add_up(self, tools):
        started = [d.payload["tool"]["id"] for d in self.drafts if d.type == "tool_started"]
        finished = [d.payload for d in self.drafts if d.type == "tool_finished"]
        assert tools["total"] == len(finished)
        for outcome in ("ok", "failed", "rejected", "unfinished"):
            told = sum(1 for payload in finished if payload["outcome"] == outcome)
            assert tools[outcome] == told
        assert set(started) <= {payload["tool_id"] for payload in finished}


AnyTurn.TestCase.settings = settings(max_examples=300, stateful_step_count=25, deadline=None)
TestAnyTurn = AnyTurn.TestCase
