"""Bounded memory of a chat for a CLI session that does not know it."""

import pytest
from scripted_guard import INIT, RESULT, result, text

from agentsdock.chats import memory
from agentsdock.model.events import Draft
from agentsdock.model.sessions import Session

CHAT = Session("sess_1", "", "", title="My chat", cwd="/srv/place")


def event(type, **fields):
    return {"type": type, "run_id": "run_1", **fields}


def compose(*events, max_chars=4000, item_chars=100):
    return memory.compose(CHAT, list(events), "why", max_chars=max_chars, item_chars=item_chars)


def test_it_tells_who_said_what_under_a_header():
    told = compose(
        event("turn_started", prompt="do it"),
        event("assistant_text", text="I did"),
        event("artifact_created", artifact={"filename": "out.txt"}),
    )
    header, *items = told.split("\n\n")
    assert "My chat" in header
    assert "/srv/place" in header
    assert "why" in header
    assert items == ["User: do it", "Assistant: I did", "File delivered: out.txt"]


def test_a_final_text_counts_only_where_nothing_was_said_before():
    silent = event("turn_finished", result_text="the answer")
    assert "Assistant: the answer" in compose(silent)
    assert compose(event("assistant_text", text="the answer"), silent).count("the answer") == 1


def test_long_items_are_cut_and_say_so():
    told = compose(event("turn_started", prompt="x" * 200))
    assert told.endswith("x" * 100 + " [cut]")


@pytest.mark.parametrize("max_chars", [1000, 4000])
def test_the_newest_is_kept_within_the_bound(max_chars):
    events = [event("assistant_text", text=f"{n} " * 40) for n in range(200)]
    told = compose(*events, max_chars=max_chars, item_chars=1800)
    assert len(told) <= max_chars
    assert told.endswith("199")
    assert "[earlier conversation trimmed]" in told


async def test_it_is_read_from_the_whole_timeline(house, monkeypatch, autojump_clock):
    monkeypatch.setattr(memory, "_SCAN_ROWS", 7)
    chat = await house.new()
    for n in range(30):
        await house.play(chat, INIT, text(f"answer {n}"), RESULT, prompt=f"question {n}")
    hidden = {"purpose": "handoff_digest", "run_id": "run_x"}
    await house.registry.write(
        house.registry.require(chat),
        [
            Draft("assistant_text", {"text": "hidden", **hidden}),
            Draft("reasoning_summary", {"text": "private thought", "phase": "summary"}),
            Draft("reasoning_summary", {"text": "said aloud", "phase": "commentary"}),
        ],
    )
    told = await memory.remember(
        house.store, house.session(chat), "why", max_chars=100_000, item_chars=100
    )
    for n in range(30):
        assert f"User: question {n}\n\nAssistant: answer {n}\n" in told
    assert "hidden" not in told
    assert "private thought" not in told
    assert "said aloud" in told


async def test_no_more_than_the_newest_events_are_taken(house, monkeypatch, autojump_clock):
    monkeypatch.setattr(memory, "EVENTS", 5)
    chat = await house.new()
    for n in range(10):
        await house.play(chat, INIT, result(f"answer {n}"), prompt=f"question {n}")
    told = await memory.remember(
        house.store, house.session(chat), "why", max_chars=100_000, item_chars=100
    )
    assert told.split("\n\n")[1:] == [
        "Assistant: answer 7",
        "User: question 8",
        "Assistant: answer 8",
        "User: question 9",
        "Assistant: answer 9",
    ]
