"""Pages of a chat in every mode, as the API gives them, against the naive way to compute them."""

import pathlib
import tempfile
from functools import partial

import msgspec
import trio
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdock import config
from agentsdock.chats import pages
from agentsdock.chats.chat import Chat
from agentsdock.chats.registry import Registry
from agentsdock.model.events import Draft, encode
from agentsdock.model.requests import ReadPage
from agentsdock.model.sessions import Session
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import PutSession
from agentsdock.store.sqlite import open_store

CHAT = "sess_0123456789abcdef"
NOW = "2026-01-02T03:04:05Z"
MOST = 6
CONVERSATION = ("turn_started", "assistant_text", "turn_queued", "error", "file_uploaded")
COMPACTED = (
    "reasoning_summary",
    "tool_started",
    "tool_finished",
    "process_started",
    "provider_session",
    "cwd_fallback",
    "history_imported",
    "backend_changed",
    "session_created",
    "code_diff",
)
KINDS = (*CONVERSATION, *COMPACTED, "raw_event")
SEQS = st.integers(0, 22)
REQUESTS = st.builds(
    ReadPage,
    after=st.just(0) | SEQS,
    before=st.none() | SEQS,
    limit=st.integers(1, 9),
    tail=st.booleans(),
    visible=st.booleans(),
    compact=st.booleans(),
)


@frozen
class Expected:
    seqs: list[int]
    before: int
    after: int
    count: int


def naive(kinds: list[str], asked: ReadPage) -> Expected:
    """``after`` wins over ``tail``; a mode leaves types out of events and counts alike."""
    hidden = {"raw_event"} if asked.visible or asked.compact else set()
    hidden |= set(COMPACTED) if asked.compact else set()
    matching = [
        seq
        for seq, kind in enumerate(kinds, 1)
        if seq > asked.after and (asked.before is None or seq < asked.before) and kind not in hidden
    ]
    limit = min(asked.limit, MOST)
    left = max(len(matching) - limit, 0)
    if asked.tail and asked.after == 0:
        return Expected(matching[left:], left, 0, len(matching))
    return Expected(matching[:limit], 0, left, len(matching))


async def compare(folder: pathlib.Path, kinds: list[str], requests: list[ReadPage]) -> None:
    loaded = config.load({"AGENTSDOCK_STATE_DIR": str(folder)}, port=0)
    limits = evolve(loaded, max_event_response_limit=MOST)
    async with open_store(folder) as store:
        registry = Registry(store, Feed(store))
        chat = Chat(Session(CHAT, NOW, NOW))
        registry.add(chat)
        drafts = [Draft(kind, {"text": "x"}) for kind in kinds]
        events = [encode(CHAT, draft, NOW) for draft in drafts]
        await store.append(CHAT, events, [PutSession(chat.session)])
        for asked in requests:
            page = msgspec.json.decode(await pages.page(store, limits, chat, asked))
            assert page["latest_seq"] == len(kinds)
            assert Expected(
                [event["seq"] for event in page["events"]],
                page["events_omitted_before"],
                page["events_omitted_after"],
                page["event_count"],
            ) == naive(kinds, asked)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), max_size=20),
    st.lists(REQUESTS, min_size=10, max_size=30),
)
def test_a_page_in_any_mode_is_what_the_naive_way_gives(kinds, requests):
    with tempfile.TemporaryDirectory() as folder:
        trio.run(partial(compare, pathlib.Path(folder) / "state", kinds, requests))
