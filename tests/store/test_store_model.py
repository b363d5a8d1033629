"""Any sequence of units, with restarts between them, against a plain model in memory."""

import pathlib
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_samples import chat, ended, event, queued, rid, run, sid, started

from agentsdock.model.events import with_seq
from agentsdock.store import ledger, loading, queries
from agentsdock.store.files import open_files
from agentsdock.store.ledger import Claim, Finish, Renew, Unit
from agentsdock.store.protocol import (
    DropQueued,
    DropSession,
    PutQueued,
    PutSession,
    RunClosed,
    RunExists,
    SessionGone,
)

CHATS = st.integers(0, 2)
RUNS = st.integers(0, 4)
FENCES = st.integers(1, 3)


class Chat:
    def __init__(self, title):
        self.title = title
        self.bodies = []
        self.queue = {}


class Model(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.opened = open_files(pathlib.Path(self.folder.name) / "state")
        self.chats, self.dropped, self.runs = {}, set(), {}
        self.text = 0

    def teardown(self):
        if hasattr(self, "opened"):
            self.opened.close()
            self.folder.cleanup()

    def commit(self, *units):
        return ledger.commit(self.opened.writer, units, 0.0)

    def events(self, count):
        self.text += count
        return [event(str(self.text - number)) for number in range(count)]

    def note(self, number, events, outcome):
        known = self.chats[number].bodies
        first = len(known) + 1
        known += [with_seq(seq, one.body) for seq, one in enumerate(events, first)]
        assert [row.body for row in outcome.committed] == known[first - 1 :]
        assert outcome.head.seq == len(known)

    @rule(number=CHATS, title=st.text(max_size=5))
    def put_session(self, number, title):
        (outcome,) = self.commit(Unit(sid(number), (), (PutSession(chat(number, title=title)),)))
        if number in self.dropped:
            assert isinstance(outcome, SessionGone)
        elif number in self.chats:
            self.chats[number].title = title
        else:
            self.chats[number] = Chat(title)

    @rule(number=CHATS)
    def drop(self, number):
        (outcome,) = self.commit(Unit(sid(number), (), (DropSession(sid(number)),)))
        if number not in self.chats:
            assert isinstance(outcome, SessionGone)
            return
        del self.chats[number]
        self.dropped.add(number)

    @rule(group=st.lists(st.tuples(CHATS, st.integers(0, 3)), min_size=1, max_size=5))
    def append_a_group(self, group):
        units = [Unit(sid(number), self.events(count), ()) for number, count in group]
        for (number, _), unit, outcome in zip(group, units, self.commit(*units), strict=True):
            if number not in self.chats:
                assert isinstance(outcome, SessionGone)
            elif unit.events:
                self.note(number, unit.events, outcome)

    @rule(number=CHATS, row=st.integers(0, 3), position=st.sampled_from([1.0, 2.0, 3.0, 4.0]))
    def queue(self, number, row, position):
        turn = queued(10 * number + row, number, position + row / 10)
        (outcome,) = self.commit(Unit(sid(number), (), (PutQueued(turn),)))
        if number in self.chats:
            self.chats[number].queue[turn.queued_id] = turn
        else:
            assert isinstance(outcome, SessionGone)

    @rule(number=CHATS, row=st.integers(0, 3))
    def unqueue(self, number, row):
        turn = queued(10 * number + row)
        self.commit(Unit(sid(number), (), (DropQueued(turn.queued_id),)))
        if number in self.chats:
            self.chats[number].queue.pop(turn.queued_id, None)

    def open_run(self, number):
        return next((r for r in self.runs.values() if r["chat"] == number and r["open"]), None)

    @rule(number=CHATS, which=RUNS, extra=st.integers(0, 2))
    def claim(self, number, which, extra):
        events = [started(which), *self.events(extra)]
        (outcome,) = self.commit(Unit(sid(number), events, (), Claim(run(which, number))))
        if number not in self.chats:
            assert isinstance(outcome, SessionGone)
        elif which in self.runs or self.open_run(number):
            assert isinstance(outcome, RunExists)
        else:
            self.runs[which] = {"chat": number, "open": True, "run": run(which, number)}
            self.note(number, events, outcome)

    def may_write(self, which, number, owner, fence):
        found = self.runs.get(which)
        if found is None or found["chat"] != number or not found["open"]:
            return False
        held = found["run"]
        return held.fence < fence or (held.fence, held.owner) == (fence, owner)

    @rule(number=CHATS, which=RUNS, owner=st.sampled_from("ab"), fence=FENCES)
    def renew(self, number, which, owner, fence):
        renewed = run(which, number, owner=owner, fence=fence)
        (outcome,) = self.commit(Unit(sid(number), (), (), Renew(renewed)))
        if number not in self.chats:
            assert isinstance(outcome, SessionGone)
        elif self.may_write(which, number, owner, fence):
            self.runs[which]["run"] = renewed
            assert isinstance(outcome, ledger.Done)
        else:
            assert isinstance(outcome, RunClosed)

    @rule(number=CHATS, which=RUNS, owner=st.sampled_from("ab"), fence=FENCES)
    def finish(self, number, which, owner, fence):
        events = [*self.events(1), ended(which)]
        step = Finish(run(which, number, owner=owner, fence=fence))
        (outcome,) = self.commit(Unit(sid(number), events, (), step))
        if number not in self.chats:
            assert isinstance(outcome, SessionGone)
        elif self.may_write(which, number, owner, fence):
            self.runs[which] |= {"open": False}
            self.note(number, events, outcome)
        else:
            assert isinstance(outcome, RunClosed)

    @rule()
    def tidy(self):
        ledger.tidy(self.opened.writer, 0.0)

    @rule()
    def restart(self):
        self.opened.close()
        self.opened = open_files(pathlib.Path(self.folder.name) / "state")

    @invariant()
    def the_ledger_says_what_the_model_says(self):
        loaded = loading.load(self.opened.writer)
        assert {one.id: one.title for one in loaded.sessions} == {
            sid(number): found.title for number, found in self.chats.items()
        }
        for number, found in self.chats.items():
            rows = queries.read_from(self.opened.reader, sid(number), 0, 10**9, 10**9)
            assert [row.body for row in rows] == found.bodies
            assert loaded.heads[sid(number)].seq == len(found.bodies)
            waiting = [row for row in loaded.queue if row.session_id == sid(number)]
            assert waiting == sorted(found.queue.values(), key=lambda row: row.position)
        assert {one.id: one for one in loaded.open_runs} == {
            rid(which): found["run"]
            for which, found in self.runs.items()
            if found["open"] and found["chat"] in self.chats
        }


Model.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestModel = Model.TestCase
