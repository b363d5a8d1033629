"""The checker: what it accepts, and that it notices each way of breaking a promise."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdock.testing.conformance.checker import (
    Connection,
    Timeline,
    check_cursors,
    check_seen,
)
from agentsdock.testing.conformance.frames import FrameSplitter


def event(seq, kind="assistant_text", run="run_1", **fields):
    told = {"seq": seq, "id": f"evt_{seq}", "session_id": "s", "type": kind, "ts": "2026"}
    return {**told, **({"run_id": run} if run else {}), **fields}


CHAT = [
    event(1, "session_created", run=None),
    event(2, "turn_started"),
    event(3),
    event(4, "raw_event"),
    event(5, "error"),
    event(6, "turn_finished"),
    event(7, "turn_started", run="run_2"),
    event(8, "turn_stopped", run="run_2"),
]


def broken(events, after=0):
    timeline = Timeline(after)
    for one in events:
        timeline.see(one)
    return {violation.rule for violation in timeline.ended()}


def test_a_whole_chat_breaks_nothing():
    assert broken(CHAT) == set()
    assert broken(CHAT[3:], after=3) == set(), "nor its end, from a cursor on"
    assert check_seen(CHAT, CHAT) == []
    assert check_seen(CHAT[3:], CHAT, after=3) == []


def without(seq):
    return [one for one in CHAT if one["seq"] != seq]


def with_after(seq, added):
    at = next(i for i, one in enumerate(CHAT) if one["seq"] == seq) + 1
    return [*CHAT[:at], added, *CHAT[at:]]


def renumbered(events):
    return [{**one, "seq": seq, "id": f"evt_{seq}"} for seq, one in enumerate(events, 1)]


SERVERS = {
    "drops an event": (without(3), "lost"),
    "repeats one": (with_after(3, CHAT[2]), "doubled"),
    "repeats one much later": (with_after(7, CHAT[2]), "doubled"),
    "swaps two": ([*CHAT[:2], CHAT[3], CHAT[2], *CHAT[4:]], "order"),
    "ends a run twice": (renumbered([*CHAT, event(9, "turn_finished", "run_2")]), "terminal"),
    "says more after the end": (renumbered([*CHAT, event(9, run="run_2")]), "order"),
    "never ends a run": (renumbered(CHAT[:5]), "terminal"),
    "speaks before the start": (renumbered([event(1), *CHAT]), "order"),
    "starts a run twice": (renumbered([CHAT[1], *CHAT[1:]]), "order"),
    "uses an id twice": ([*CHAT, {**event(9, "x", None), "id": "evt_3"}], "doubled"),
    "has no id": ([*CHAT[:2], {**CHAT[2], "id": None}, *CHAT[3:]], "envelope"),
    "counts in words": ([*CHAT, {**event(9), "seq": "9"}], "envelope"),
    "counts in truths": ([{**CHAT[0], "seq": True}, *CHAT[1:]], "envelope"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_caught_that(name):
    events, rule = SERVERS[name]
    assert rule in broken(events)


CLIENTS = {
    "misses one": (without(3), {"lost"}),
    "misses the end": (CHAT[:-1], {"lost"}),
    "shows one twice": (with_after(3, CHAT[2]), {"doubled"}),
    "shows two in the wrong order": ([*CHAT[:1], CHAT[2], CHAT[1], *CHAT[3:]], {"lost", "order"}),
    "changes one": ([*CHAT[:2], {**CHAT[2], "text": "other"}, *CHAT[3:]], {"changed"}),
    "invents one": ([*CHAT, event(9, "note", None)], {"invented"}),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_caught_that(name):
    events, rules = CLIENTS[name]
    assert rules <= {violation.rule for violation in check_seen(events, CHAT)}


def test_a_client_need_not_show_raw_events():
    assert check_seen(without(4), CHAT) == []


@given(st.data())
def test_any_one_change_of_what_was_seen_is_noticed(data):
    seen = copy.deepcopy(CHAT)
    at = data.draw(st.integers(0, len(seen) - 1))
    match data.draw(st.sampled_from(["drop", "repeat", "move", "change"])):
        case "drop":
            if seen[at]["type"] == "raw_event":
                return
            del seen[at]
        case "repeat":
            seen.insert(data.draw(st.integers(at + 1, len(seen))), seen[at])
        case "move":
            to = data.draw(st.integers(0, len(seen) - 1).filter(lambda to: to != at))
            seen.insert(to, seen.pop(at))
        case "change":
            seen[at]["extra"] = 1
    assert check_seen(seen, CHAT)


def test_a_client_asks_for_what_follows():
    whole = [Connection(0, 5), Connection(5, None), Connection(5, 9), Connection(9, 12)]
    assert check_cursors(whole) == []
    assert check_cursors([]) == []
    assert check_cursors([Connection(0, 5, close_code=1012), Connection(5, 9)]) == []
    assert check_cursors([Connection(0, 5, lossy=True), Connection(3, 9)]) == []


@pytest.mark.parametrize(
    "connections, rule",
    [
        ([Connection(0, 5), Connection(0, 9)], "doubled"),
        ([Connection(0, 5), Connection(6, 9)], "lost"),
        ([Connection(0, 5, lossy=True), Connection(6, 9)], "lost"),
        ([Connection(4, None), Connection(0, 9)], "doubled"),
        ([Connection(0, 5, close_code=4404), Connection(5, None)], "close"),
    ],
)
def test_a_client_is_caught_by_the_cursors_it_asks_with(connections, rule):
    (violation,) = check_cursors(connections)
    assert violation.rule == rule


@given(
    st.lists(st.sampled_from([0, 1, 125, 126, 65_535, 65_536]), max_size=6),
    st.integers(1, 70_000),
)
def test_frames_are_found_however_their_bytes_are_split(sizes, piece):
    frames = []
    for size in sizes:
        length = (
            bytes([size])
            if size < 126
            else b"\x7e" + size.to_bytes(2, "big")
            if size < 65_536
            else b"\x7f" + size.to_bytes(8, "big")
        )
        frames.append(b"\x81" + length + b"x" * size)
    data = b"".join(frames)
    piece = max(piece, len(data) // 500)
    splitter, found = FrameSplitter(), []
    for at in range(0, len(data), piece):
        found += splitter.feed(data[at : at + piece])
    assert [frame for _, frame, _ in found] == frames
    assert [len(payload) for _, _, payload in found] == sizes
    assert {opcode for opcode, _, _ in found} <= {1}
