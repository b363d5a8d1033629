"""A timeline by its landmarks, over a real store: what a client can rebuild from it."""

import contextlib
import pathlib
import tempfile
from functools import partial

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdock import config
from agentsdock.chats import reading as reading_module
from agentsdock.chats.chat import Chat
from agentsdock.chats.reading import Reading
from agentsdock.chats.registry import Registry
from agentsdock.model.events import Draft, encode
from agentsdock.model.requests import ReadPage
from agentsdock.model.sessions import Session
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import PutSession
from agentsdock.store.sqlite import open_store

CHAT = "sess_0123456789abcdef"
NOW = "2026-01-02T03:04:05Z"
EVERYTHING = 1000


class Client:
    """One chat in a house, and what somebody reads of it."""

    def __init__(self, store, folder):
        self.store = store
        registry = Registry(store, Feed(store))
        registry.add(Chat(Session(CHAT, NOW, NOW)))
        loaded = config.load({"AGENTSDOCK_STATE_DIR": str(folder)}, port=0)
        self.reading = Reading(loaded, store, registry)

    async def tell(self, *events):
        drafts = [Draft(kind, payload) for kind, payload in events]
        await self.store.append(CHAT, [encode(CHAT, draft, NOW) for draft in drafts])

    async def page(self, **query):
        asked = ReadPage(**{"limit": EVERYTHING, "semantic": True, **query})
        return msgspec.json.decode(await self.reading.semantic_page(CHAT, asked))

    async def index(self):
        return msgspec.json.decode(await self.reading.index(CHAT))

    async def trace(self, run, *, anchor=None, after=0, limit=100):
        body = await self.reading.trace(CHAT, run, anchor=anchor, after=after, limit=limit)
        return msgspec.json.decode(body)

    async def follow(self, after):
        return [row.decode() for row in await self.store.read_from(CHAT, after)]


@contextlib.asynccontextmanager
async def living(folder):
    async with open_store(folder) as store:
        await store.append(CHAT, (), [PutSession(Session(CHAT, NOW, NOW))])
        yield Client(store, folder)


@pytest.fixture
async def client(tmp_path):
    async with living(tmp_path / "state") as client:
        yield client


def started(run, prompt="do it", **more):
    return "turn_started", {"run_id": run, "prompt": prompt, **more}


def said(run, text):
    return "assistant_text", {"run_id": run, "text": text}


def worked(run):
    return "tool_started", {"run_id": run, "tool": {"id": "1", "name": "grep", "input": {}}}


def ended(run, result="done", **more):
    return "turn_finished", {"run_id": run, "result_text": result, "exit_code": 0, **more}


def texts(page):
    return [event["text"] for event in page["events"] if event["type"] == "assistant_text"]


async def test_what_a_live_turn_said_is_on_the_page_however_much_it_did_since(client):
    await client.tell(started("run_1"), said("run_1", "On it."), *[worked("run_1")] * 40)
    assert texts(await client.page()) == ["On it."]


@pytest.mark.parametrize(
    "end",
    [
        ended("run_1", "", stopped=True),
        ended("run_1", "", is_error=True, code="nonzero_exit", message="exit 1"),
        ("turn_stopped", {"run_id": "run_1", "recovered_after_restart": True}),
    ],
)
async def test_all_that_a_turn_said_is_shown_where_its_end_does_not_say_it(client, end):
    words = [f"step {number}" for number in range(12)]
    await client.tell(started("run_1"), *(said("run_1", text) for text in words))
    await client.tell(*[worked("run_1")] * 40, end)
    page = await client.page()
    assert texts(page) == words
    assert page["events"][-1]["type"] == end[0]


async def test_a_turn_that_answered_takes_no_more_than_its_share(client):
    await client.tell(started("run_1"), *[said("run_1", "step")] * 12, ended("run_1"))
    assert len((await client.page())["events"]) == 4


async def test_the_index_previews_the_latest_words_of_a_turn_that_goes_on(client):
    await client.tell(started("run_1"), said("run_1", "First."), worked("run_1"))
    for text in ("First.", "Second."):
        [mark] = (await client.index())["landmarks"]
        assert mark["preview"] == text
        await client.tell(said("run_1", "Second."), worked("run_1"))
    await client.tell(ended("run_1", "All done."))
    [mark] = (await client.index())["landmarks"]
    assert mark["preview"] == "All done."


async def test_copied_turns_that_share_a_run_have_their_own_words_and_traces(client):
    for number in range(3):
        await client.tell(
            started("run_1", f"ask {number}", imported=True),
            worked("run_1"),
            said("run_1", f"answer {number}"),
        )
    marks = (await client.index())["landmarks"]
    assert [(mark["title"], mark["preview"]) for mark in marks] == [
        (f"ask {number}", f"answer {number}") for number in range(3)
    ]
    assert [mark["key"] for mark in marks] == [
        "turn:run_1",
        "turn:run_1:start-4",
        "turn:run_1:start-7",
    ]
    assert texts(await client.page()) == ["answer 0", "answer 1", "answer 2"]
    second = await client.trace("run_1", anchor=4)
    assert [event["seq"] for event in second["events"]] == [5]
    whole = await client.trace("run_1")
    assert [event["seq"] for event in whole["events"]] == [2, 5, 8]


async def test_what_a_turn_took_is_counted_once_however_often_the_index_is_read(client):
    thought = ("reasoning_summary", {"run_id": "run_1", "text": "hm"})
    await client.tell(started("run_1"), worked("run_1"), thought)
    await client.page()
    for meta in ("1 tool · 1 thought", "2 tools · 1 thought", "2 tools · 1 thought"):
        [mark] = (await client.index())["landmarks"]
        assert mark["meta"] == meta
        if meta.startswith("1"):
            await client.tell(worked("run_1"))
    assert [event["type"] for event in (await client.trace("run_1"))["events"]] == [
        "tool_started",
        "reasoning_summary",
        "tool_started",
    ]


async def test_each_run_of_a_job_has_its_own_trace(client):
    job = {"job_id": "job_1"}
    for run in ("run_1", "run_2"):
        await client.tell(started(run, **job), worked(run), ended(run, **job))
    assert [event["seq"] for event in (await client.trace("run_2"))["events"]] == [5]


async def test_a_page_of_enormous_turns_is_short_and_leads_to_the_others(client):
    for number in range(100):
        run = f"run_{number}"
        await client.tell(started(run, "p" * 130_000), ended(run, "r" * 130_000))
    keys = [mark["key"] for mark in (await client.index())["landmarks"]]
    seen, before = [], None
    while True:
        page = await client.page(before=before)
        assert sum(len(msgspec.json.encode(event)) for event in page["events"]) <= 16 * 1024 * 1024
        assert (
            page["semantic_item_count"] + page["semantic_omitted_before"]
            == (page["semantic_total"])
        )
        runs = dict.fromkeys(f"turn:{event['run_id']}" for event in page["events"])
        assert len(runs) == page["semantic_item_count"] < 100
        seen = [*runs, *seen]
        before = page["next_semantic_before"]
        if before is None:
            break
    assert seen == keys
    first = await client.page(tail=False)
    assert first["events"][0]["seq"] == 1
    assert first["semantic_omitted_after"] == 100 - first["semantic_item_count"] > 0


async def test_the_index_of_many_landmarks_lets_others_have_their_turn(client, monkeypatch):
    monkeypatch.setattr(reading_module, "PIECE", 10)
    await client.tell(*[("file_uploaded", {"file": {"filename": "a"}})] * 100)
    steps = 0
    async with trio.open_nursery() as nursery:

        async def count():
            nonlocal steps
            while True:
                steps += 1
                await trio.lowlevel.checkpoint()

        await client.index()
        nursery.start_soon(count)
        index = await client.index()
        nursery.cancel_scope.cancel()
    assert len(index["landmarks"]) == 100
    assert steps >= 10


async def test_a_chat_that_is_read_for_the_first_time_keeps_no_other_waiting(client, monkeypatch):
    await client.tell(started("run_1"), ended("run_1"))
    other = "sess_fedcba9876543210"
    client.reading.registry.add(Chat(Session(other, NOW, NOW)))
    new = encode(other, Draft(*ended("run_9")), NOW)
    await client.store.append(other, [new], [PutSession(Session(other, NOW, NOW))])
    outline, waits = client.store.outline, trio.Event()

    async def slow_for_the_other(session_id, after):
        if session_id == other:
            await waits.wait()
        return await outline(session_id, after)

    monkeypatch.setattr(client.store, "outline", slow_for_the_other)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.reading.index, other)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            assert (await client.page())["semantic_total"] == 1
        waits.set()


async def test_a_page_is_of_one_moment_even_if_others_read_meanwhile(client, monkeypatch):
    job = {"job_id": "job_1", "job_title": "Nightly"}
    await client.tell(started("run_1", **job), ended("run_1", **job))
    spans = client.store.spans
    async with trio.open_nursery() as nursery:

        async def grown_meanwhile(*args):
            await client.tell(started("run_2", **job), ended("run_2", **job))
            nursery.start_soon(client.index)
            await trio.testing.wait_all_tasks_blocked()
            return await spans(*args)

        monkeypatch.setattr(client.store, "spans", grown_meanwhile)
        page = await client.page()
    [summary] = [event for event in page["events"] if event["type"] == "job_summary"]
    assert summary["seq"] == page["latest_seq"] == 2
    assert summary["job_run_count"] == 1


async def test_a_deleted_chat_is_forgotten(client):
    await client.tell(started("run_1"))
    await client.index()
    registry = client.reading.registry
    gone = registry.require(CHAT)
    registry.forget(gone)
    other = Chat(Session("sess_fedcba9876543210", NOW, NOW))
    registry.add(other)
    await client.store.append(other.id, (), [PutSession(other.session)])
    await client.reading.index(other.id)
    assert list(client.reading._outlines) == [other.id]


TURN = st.tuples(
    st.sampled_from(["answered", "silent", "stopped", "failed", "open", "crashed", "imported"]),
    st.lists(st.sampled_from(["say", "blank", "work", "think", "deliver"]), max_size=7),
)
ALONE = st.sampled_from(["file", "error", "queue", "raw"])
HISTORIES = st.lists(TURN | ALONE, max_size=9)


def history(steps):
    """Events of a chat whose turns end in every way, with other things between them."""
    events = []
    for number, step in enumerate(steps):
        if isinstance(step, str):
            events.append(alone(step, number))
            continue
        how, inside = step
        run = "run_import" if how == "imported" else f"run_{number}"
        events.append(started(run, f"prompt {number}", imported=how == "imported"))
        events += [within(run, kind, f"{number}.{place}") for place, kind in enumerate(inside)]
        events += ending(run, how, number)
    return events


def alone(kind, number):
    return {
        "file": ("file_uploaded", {"file": {"id": f"file_{number}", "filename": "a.txt"}}),
        "error": ("error", {"message": f"error {number}"}),
        "queue": ("turn_queued", {"queued_id": f"queued_{number}", "prompt": "later"}),
        "raw": ("raw_event", {"raw": "{}"}),
    }[kind]


def within(run, kind, name):
    return {
        "say": said(run, f"words {name}"),
        "blank": said(run, "  "),
        "work": worked(run),
        "think": ("reasoning_summary", {"run_id": run, "text": "hm"}),
        "deliver": ("artifact_created", {"run_id": run, "artifact": {"id": f"file_{name}"}}),
    }[kind]


def ending(run, how, number):
    return {
        "answered": [ended(run, f"result {number}")],
        "silent": [ended(run, "")],
        "stopped": [ended(run, "", stopped=True)],
        "failed": [
            ("error", {"run_id": run, "message": "no"}),
            ended(run, "", is_error=True, code="bad_line", message="no"),
        ],
        "crashed": [("turn_stopped", {"run_id": run, "recovered_after_restart": True})],
        "open": [],
        "imported": [],
    }[how]


def conversation(events):
    """What a client shows before anybody opens a turn: who asked what, what came of it, what was
    delivered, and what happened beside."""
    shown, turn = [], None
    for event in sorted({e["id"]: e for e in events}.values(), key=lambda e: e["seq"]):
        kind, run = event["type"], event.get("run_id")
        if kind == "turn_started":
            turn = {"run": run, "prompt": event["prompt"], "words": [], "files": [], "end": None}
            shown.append(turn)
        elif kind in ("file_uploaded", "error") and run is None:
            shown.append(event)
        elif turn is None or run != turn["run"]:
            continue
        elif kind == "assistant_text" and event["text"].strip():
            turn["words"].append(event["text"])
        elif kind == "artifact_created":
            turn["files"].append(event["artifact"]["id"])
        elif kind in ("turn_finished", "turn_stopped"):
            turn["end"] = event
            if event.get("result_text"):
                turn["words"] = [event["result_text"]]
    return shown


async def write(client, events):
    """One after the other: nothing of a run follows its end."""
    for event in events:
        await client.tell(event)


async def rebuild(folder, events, cut, limit):
    """By semantic pages from the newest back, while the rest of the chat is being written."""
    async with living(folder) as client, trio.open_nursery() as nursery:
        await client.tell(*events[:cut])
        nursery.start_soon(write, client, events[cut:])
        page = await client.page(limit=limit)
        latest, seen = page["latest_seq"], page["events"]
        assert all(event["seq"] <= latest for event in seen)
        while (before := page["next_semantic_before"]) is not None:
            page = await client.page(limit=limit, before=before)
            seen += page["events"]
        while nursery.child_tasks:
            await trio.lowlevel.checkpoint()
        seen += await client.follow(latest)
        everything = await client.follow(0)
    assert conversation(seen) == conversation(everything)


@settings(max_examples=40, deadline=None)
@given(HISTORIES, st.floats(0, 1), st.integers(1, 4))
def test_pages_and_what_follows_make_the_conversation_that_the_whole_list_makes(
    steps, share, limit
):
    events = history(steps)
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder) / "state"
        trio.run(partial(rebuild, state, events, round(share * len(events)), limit))
