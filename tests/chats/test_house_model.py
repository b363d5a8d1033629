"""Whatever clients, CLIs and crashes do: no accepted message is lost, none runs twice, each run
has exactly one ending, and nothing runs that nobody sent."""

import pathlib
import tempfile

import trio
import trio.testing
from attrs import define, field
from house import TERMINALS, living, settle
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from scripted_guard import INIT, RESULT, text

from agentsdock.model.errors import DockError
from agentsdock.model.requests import PatchSession

which = st.integers(0, 5)
ACTION = st.one_of(
    st.just(("create",)),
    st.tuples(st.just("post"), which),
    st.tuples(st.just("post"), which),
    st.tuples(st.just("post again"), which),
    st.tuples(st.just("succeed"), which),
    st.tuples(st.just("fail"), which),
    st.tuples(st.just("speak"), which),
    st.tuples(st.just("stop"), which),
    st.tuples(st.just("archive"), which),
    st.tuples(st.just("unarchive"), which),
    st.tuples(st.just("delete"), which),
    st.just(("wait",)),
)
ENDING = st.one_of(
    st.just(("crash", None, 0)),
    st.just(("shut down", None, 0)),
    st.tuples(st.just("crash"), ACTION, st.integers(0, 60)),
)
LIFE = st.tuples(st.lists(ACTION, max_size=12), ENDING)


@define
class Model:
    """What clients know.  A message is ``sent``, and ``accepted`` once there was an answer."""

    chats: list[str] = field(factory=list)
    deleted: set[str] = field(factory=set)
    sent: dict[str, list[str]] = field(factory=dict)
    accepted: dict[str, list[str]] = field(factory=dict)

    def pick(self, number):
        return self.chats[number % len(self.chats)] if self.chats else None

    async def do(self, house, action):
        kind, *number = action
        if kind == "create":
            chat = await house.new()
            self.chats.append(chat)
            self.sent[chat], self.accepted[chat] = [], []
        elif kind == "wait":
            await trio.sleep(70)
        elif kind in ("succeed", "fail", "speak"):
            self.play(house, kind, *number)
        elif (chat := self.pick(*number)) is not None:
            try:
                await getattr(self, kind.replace(" ", "_"))(house, chat)
            except DockError as refused:
                note(f"{kind}: {refused}")

    def play(self, house, kind, number):
        running = [p for p in house.launcher.launched if not p.closed.is_set()]
        if running:
            process = running[number % len(running)]
            process.say(INIT, text("hello"))
            if kind == "succeed":
                process.say(RESULT)
            if kind != "speak":
                process.exit(0 if kind == "succeed" else 3)

    async def post(self, house, chat):
        message = f"message {len(self.sent[chat])}"
        self.sent[chat].append(message)
        await house.post(chat, message, key=message)
        self.accepted[chat].append(message)

    async def post_again(self, house, chat):
        """The client repeats its last message with the same key."""
        if self.sent[chat]:
            message = self.sent[chat][-1]
            await house.post(chat, message, key=message)
            if message not in self.accepted[chat]:
                self.accepted[chat].append(message)

    async def stop(self, house, chat):
        await house.stop(chat)

    async def archive(self, house, chat):
        await house.chats.patch(chat, PatchSession(archived=True))

    async def unarchive(self, house, chat):
        await house.chats.patch(chat, PatchSession(archived=False))

    async def delete(self, house, chat):
        self.deleted.add(chat)
        await house.chats.delete(chat)

    async def check(self, house):
        for chat in self.chats:
            if chat not in self.deleted:
                await self.check_chat(house, chat)
        running = [p for p in house.launcher.launched if not p.closed.is_set()]
        assert len(running) == sum(chat.busy for chat in house.registry) <= 2
        assert house.dispatcher.slots.taken == len(running)

    async def check_chat(self, house, chat):
        events = await house.events(chat)
        started = [e for e in events if e["type"] == "turn_started"]
        ended = [e["run_id"] for e in events if e["type"] in TERMINALS]
        live = house.registry.require(chat).live
        running = [live.run.id] if live else []
        assert [event["run_id"] for event in started] == ended + running
        assert all(e["text"] == "hello" for e in events if e["type"] == "assistant_text")
        waiting = [row["prompt"] for row in await house.rows(chat)]
        known = [event["prompt"] for event in started] + waiting
        assert len(set(known)) == len(known), "a message runs twice"
        assert set(self.accepted[chat]) <= set(known) <= set(self.sent[chat])
        assert known == sorted(known, key=self.sent[chat].index), "out of order"
        loaded = await house.store.load()
        assert [turn.prompt for turn in loaded.queue if turn.session_id == chat] == waiting
        assert [run.id for run in loaded.open_runs if run.session_id == chat] == running


async def live(folder, actions, ending, model):
    async with living(folder, max_active_runs=2) as house:
        await settle()
        await model.check(house)
        for action in actions:
            await model.do(house, action)
            await settle()
            await model.check(house)
        how, last, moments = ending
        if how == "shut down":
            await house.stopper.shut_down()
            assert all(not chat.busy for chat in house.registry)
        elif last is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(model.do, house, last)
                for _ in range(moments):
                    await trio.lowlevel.checkpoint()
                house.nursery.cancel_scope.cancel()
                nursery.cancel_scope.cancel()


async def run(folder, lives):
    model = Model()
    for actions, ending in lives:
        await live(folder, actions, ending, model)
    await live(folder, [("wait",)], ("crash", None, 0), model)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(LIFE, min_size=1, max_size=4))
def test_any_history_of_the_house(lives):
    with tempfile.TemporaryDirectory() as folder:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(run, pathlib.Path(folder), lives, clock=clock)
