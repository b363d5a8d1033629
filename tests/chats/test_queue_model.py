"""Whatever is done to a queue, between any crashes: it is what was last acknowledged, and each
message runs at most once, with the text that was last acknowledged for it."""

import copy
import pathlib
import tempfile

import pytest
import trio
import trio.testing
from attrs import define, evolve, field
from house import TERMINALS, living, make_settings, settle
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from scripted_guard import INIT, RESULT
from waiting import hide, state

from agentsdock.chats import pressure
from agentsdock.chats.queue import REPLAY_SECONDS
from agentsdock.model.errors import Conflict, NotFound, Unavailable

STOP_TAKES = 1.0

ROW = st.integers(0, 5)
ACTION = st.one_of(
    st.just(("post",)),
    st.just(("init",)),
    st.just(("init",)),
    st.tuples(st.just("end"), st.sampled_from(["succeed", "fail"])),
    st.tuples(st.just("edit"), ROW),
    st.tuples(st.just("delete"), ROW),
    st.tuples(st.just("move"), ROW, st.sampled_from(["up", "down"])),
    st.tuples(st.just("run_now"), ROW),
    st.tuples(st.just("run_now"), ROW),
    st.tuples(st.just("run_again"), ROW),
    st.just(("stop",)),
    st.tuples(st.just("hide"), ROW),
    st.tuples(st.just("lack"), st.sampled_from(["memory", "runtime"])),
    st.tuples(st.just("wait"), st.sampled_from([6, 121])),
)
ON_A_ROW = ("edit", "delete", "move", "run_now")
ENDING = st.one_of(
    st.just(("crash", None, 0)),
    st.just(("shut down", None, 0)),
    st.tuples(st.just("crash"), ACTION, st.integers(0, 60)),
)
BEGINNING = [("post",), ("post",), ("post",), ("post",), ("init",)]
LIFE = st.tuples(st.lists(ACTION, max_size=12), ENDING)


@define
class Row:
    text: str
    queued_id: str | None = None
    paused: bool = False
    promoted: bool = False
    deferred: bool = False
    hidden: bool = False


@define
class Model:
    """The queue of one chat as its rules say it is, in the plainest terms."""

    rows: list[Row] = field(factory=list)
    started: list[str] = field(factory=list)
    running: str | None = None
    taken_up: bool = False
    ending: bool = False
    lacks: set[str] = field(factory=set)
    sent: int = 0
    answers: dict[str, float] = field(factory=dict)

    # What each action does, and what it answers: an exception class where it is refused.

    def post(self):
        self.sent += 1
        text = f"message {self.sent}"
        if self.running or self.rows or "memory" in self.lacks:
            self.rows.append(Row(text, deferred=not (self.running or self.rows)))
        elif "runtime" in self.lacks:
            return Unavailable
        else:
            self._start(text)
        return None

    def init(self):
        self.taken_up = bool(self.running) and not self.ending

    def end(self, how):
        self.running = None

    def edit(self, number):
        row = self._touch(number)
        if isinstance(row, Row):
            row.text = f"edit of {row.text}"
        return row

    def delete(self, number):
        row = self._touch(number)
        if isinstance(row, Row):
            self.rows.remove(row)
            self.answers.pop(row.queued_id, None)
        return row

    def move(self, number, direction):
        row = self._touch(number)
        if not isinstance(row, Row):
            return row
        place = self.rows.index(row)
        other = place + (1 if direction == "down" else -1)
        if not 0 <= other < len(self.rows):
            return row
        if self.rows[other].hidden:
            return Conflict
        row.promoted = self.rows[other].promoted = False
        self.rows[place], self.rows[other] = self.rows[other], row
        return row

    def run_now(self, number, now):
        row = self._touch(number)
        if not isinstance(row, Row):
            return row
        if row.promoted and self._answers_again(row.queued_id, now):
            return row
        place = self.rows.index(row)
        head = self.rows[0]
        if any(before.hidden for before in self.rows[:place]):
            return Conflict
        if place and head.promoted and not head.deferred:
            return Conflict
        if self.running and not self.ending and (not self.taken_up or self.lacks):
            row.deferred = True
            return Conflict
        head.promoted = False
        row.paused, row.promoted, row.deferred = False, True, False
        self.rows.remove(row)
        self.rows.insert(0, row)
        self.ending = bool(self.running)
        self.answers[row.queued_id] = now
        return row

    def run_again(self, queued_id, now):
        return None if self._answers_again(queued_id, now) else NotFound

    def stop(self):
        for row in self.rows:
            if not row.hidden:
                row.paused, row.promoted = True, False
        self.running = None

    def hide(self, row):
        row.hidden = True

    def drain(self):
        if self.running or not self.rows or self.rows[0].paused:
            return
        if self.lacks:
            self.rows[0].deferred = True
        else:
            self._start(self.rows.pop(0).text)

    def crash(self):
        self.running = None
        self.answers = {}

    def _start(self, text):
        self.started.append(text)
        self.running, self.taken_up, self.ending = text, False, False

    def _touch(self, number):
        row = self.rows[number % len(self.rows)]
        return Conflict if row.hidden else row

    def _answers_again(self, queued_id, now):
        return now < self.answers.get(queued_id, -REPLAY_SECONDS) + REPLAY_SECONDS

    @property
    def seen(self):
        """What must be found in the house."""
        rows = [(r.text, r.paused, r.promoted, r.hidden) for r in self.rows]
        return self.started, rows, self.running


class World:
    """The same chat in a real house, and the model of it."""

    def __init__(self):
        self.model = Model()
        self.chat = None
        self.house = None
        self.gone = []

    def reason_to_wait(self, settings, live):
        return "too little memory" if "memory" in self.model.lacks else None

    async def enter(self, house):
        self.house = house
        house.launcher.play = lambda process: setattr(process, "stop_takes", STOP_TAKES)
        self._equip()
        if self.chat is None:
            self.chat = await house.new()
            for action in BEGINNING:
                await self.do(action)
                await settle()
        await settle()

    def _equip(self):
        lacks = "runtime" in self.model.lacks
        self.house.runtimes.trouble = "not usable" if lacks else None

    async def do(self, action):
        kind, *args = action
        if kind in ON_A_ROW and not self.model.rows:
            kind, args = "post", []
        self.gone += [row.queued_id for row in self.model.rows if row.queued_id not in self.gone]
        await getattr(self, f"do_{kind}")(*args)

    async def expect(self, wanted, attempt):
        """Carry out a request; it must be refused as the model says."""
        if isinstance(wanted, type):
            with pytest.raises(wanted):
                await attempt
            return None
        return await attempt

    def target(self, number):
        return self.model.rows[number % len(self.model.rows)].queued_id

    async def do_post(self):
        wanted = self.model.post()
        answer = await self.expect(wanted, self.house.post(self.chat, f"message {self.model.sent}"))
        if answer is not None and answer["queued"]:
            self.model.rows[-1].queued_id = answer["queued_id"]
            assert answer["position"] == len(self.model.rows)

    async def do_edit(self, number):
        target = self.target(number)
        row = self.model.edit(number)
        text = row.text if isinstance(row, Row) else "refused"
        await self.expect(row, self.house.edit(self.chat, target, prompt=text))

    async def do_delete(self, number):
        target = self.target(number)
        row = self.model.delete(number)
        await self.expect(row, self.house.queue.delete(self.chat, target))

    async def do_move(self, number, direction):
        target = self.target(number)
        row = self.model.move(number, direction)
        await self.expect(row, self.house.queue.move(self.chat, target, direction))

    async def do_run_now(self, number):
        target = self.target(number)
        row = self.model.run_now(number, trio.current_time())
        await self.expect(row, self.house.run_now(self.chat, target))

    async def do_run_again(self, number):
        """Somebody repeats a request for a row that waits no more."""
        waiting = {row.queued_id for row in self.model.rows}
        gone = [known for known in self.gone if known not in waiting]
        if gone:
            target = gone[number % len(gone)]
            wanted = self.model.run_again(target, trio.current_time())
            await self.expect(wanted, self.house.run_now(self.chat, target))

    async def do_stop(self):
        self.model.stop()
        await self.house.stop(self.chat)

    async def do_init(self):
        if self.model.running:
            self.model.init()
            self.process.say(INIT)

    async def do_end(self, how):
        if self.model.running and not self.model.ending:
            self.model.end(how)
            self.process.say(INIT, *([RESULT] if how == "succeed" else []))
            self.process.exit(0 if how == "succeed" else 3)

    async def do_hide(self, number):
        """A delivery of another chat comes in: the row becomes one."""
        rows = [r for r in self.model.rows if not (r.paused or r.promoted or r.hidden)]
        if rows:
            row = rows[number % len(rows)]
            self.model.hide(row)
            await hide(self.house, self.chat, row.queued_id)

    async def do_lack(self, what):
        self.model.lacks ^= {what}
        self._equip()
        await self.do_wait(6)

    async def do_wait(self, seconds):
        if self.model.ending:
            self.model.running = None
        self.model.drain()
        await trio.sleep(seconds)

    @property
    def process(self):
        return self.house.launcher.launched[-1]

    async def seen(self):
        events = await self.house.events(self.chat)
        queue, _ = await state(self.house, self.chat)
        started = [event["prompt"] for event in events if event["type"] == "turn_started"]
        ended = [event["run_id"] for event in events if event["type"] in TERMINALS]
        live = self.house.registry.require(self.chat).live
        running = [live.run.id] if live else []
        begun = [event["run_id"] for event in events if event["type"] == "turn_started"]
        assert begun == ended + running
        rows = [(r.prompt, r.paused, r.promoted, r.hidden) for r in queue]
        return started, rows, started[-1] if live else None


def patient(folder):
    """No clock of a turn runs out, and what waits for its runtime is soon tried again."""
    cursor = make_settings(folder).backends["cursor"]
    limits = evolve(cursor.limits, startup_seconds=1e6, idle_seconds=1e6, turn_seconds=1e6)
    backends = {"cursor": evolve(cursor, limits=limits)}
    return living(folder, backends=backends, busy_retry_seconds=5)


async def live(folder, actions, ending, world):
    async with patient(folder) as house:
        await world.enter(house)
        world.model.drain()
        assert await world.seen() == world.model.seen
        for action in actions:
            await world.do(action)
            await settle()
            world.model.drain()
            note(f"{action}: {world.model.seen}")
            assert await world.seen() == world.model.seen
        how, last, moments = ending
        if how == "shut down":
            await house.stopper.shut_down()
        before = copy.deepcopy(world.model)
        if last is not None:
            await _cut_off(house, world, last, moments)
    return before


async def _cut_off(house, world, action, moments):
    """Die in the middle of an action."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.do, action)
        for _ in range(moments):
            await trio.lowlevel.checkpoint()
        house.nursery.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def run(folder, lives, world):
    for actions, ending in lives:
        before = await live(folder, actions, ending, world)
        await adopt(folder, world, before)
    await live(folder, [("wait", 6)], ("crash", None, 0), world)


async def adopt(folder, world, before):
    """The last life may have died in the middle of an action: all of it happened, or nothing,
    or all of it and the start that follows from it."""
    after = world.model
    before.lacks, before.sent = after.lacks, after.sent
    begun = copy.deepcopy(after)
    begun.drain()
    candidates = [before, after, begun]
    for model in candidates:
        model.crash()
    async with patient(folder) as house:
        after.lacks = after.lacks | {"memory"}  # nothing starts in this short life
        await world.enter(house)
        found = await world.seen()
        after.lacks = before.lacks
        ids = [row.queued_id for row in house.registry.require(world.chat).queue]
    world.model = next((model for model in candidates if model.seen == found), None)
    assert world.model is not None, f"{found} is none of {[m.seen for m in candidates]}"
    for row, queued_id in zip(world.model.rows, ids, strict=True):
        assert row.queued_id in (None, queued_id)
        row.queued_id = queued_id
    if world.model.rows and not world.model.rows[0].paused:
        world.model.rows[0].deferred = True


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(LIFE, min_size=1, max_size=4))
def test_any_history_of_a_queue(lives):
    world = World()
    clock = trio.testing.MockClock(autojump_threshold=0)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(pressure, "reason_to_wait", world.reason_to_wait)
        trio.run(run, pathlib.Path(folder), lives, world, clock=clock)
