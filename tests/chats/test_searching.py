"""Whose words a search through all chats may show."""

from agentsdock.chats.chat import Chat
from agentsdock.chats.registry import Registry, encoded
from agentsdock.chats.searching import Searching
from agentsdock.model.events import Draft
from agentsdock.model.sessions import Session
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import PutSession
from agentsdock.store.sqlite import open_store

T0 = "2026-01-01T00:00:00Z"


def said(chat, kind, text, ts=T0):
    run = {"run_id": "run_0000000000000001"}
    payload = {"result_text": text} if kind == "turn_finished" else {"text": text}
    return encoded(chat, [Draft(kind, {**run, **payload, "ts": ts})])


async def test_only_chats_that_are_listed_and_not_archived_are_found_latest_first(tmp_path):
    async with open_store(tmp_path / "state") as store:
        registry = Registry(store, Feed(store))
        states = [{}, {}, {"archived": True}, {"initialising": True}]
        chats = [Chat(Session(f"sess_{n:016x}", T0, T0, **more)) for n, more in enumerate(states)]
        for number, chat in enumerate(chats):
            registry.add(chat)
            ts = f"2026-01-0{9 - number}T00:00:00Z"
            words = said(chat, "assistant_text", "needle one", ts)
            words += said(chat, "assistant_text", "needle two", ts)
            await store.append(chat.id, words, [PutSession(chat.session)])
        found = await Searching(store, registry).everywhere("needle", 10)
        shown = [(r["session_id"], r["seq"], r["match_count"]) for r in found["results"]]
        assert shown == [(chats[0].id, 2, 2), (chats[1].id, 2, 2)]
        found = await Searching(store, registry).everywhere("needle", 1)
        assert [r["session_id"] for r in found["results"]] == [chats[0].id]


async def test_a_result_that_says_what_no_text_has_said_is_a_hit(tmp_path):
    async with open_store(tmp_path / "state") as store:
        registry = Registry(store, Feed(store))
        chat = Chat(Session("sess_0000000000000001", T0, T0))
        registry.add(chat)
        words = said(chat, "assistant_text", "something else")
        words += said(chat, "turn_finished", "the needle")
        await store.append(chat.id, words, [PutSession(chat.session)])
        found = await Searching(store, registry).chat(chat.id, "needle", 10)
        assert [(r["seq"], r["snippet"]) for r in found["results"]] == [(2, "the needle")]
