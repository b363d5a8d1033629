"""Counts that are kept between reads say what a count of all rows would."""

import apsw
from hypothesis import given
from hypothesis import strategies as st
from store_samples import chat, event, sid

from agentsdock.store import counting, ledger, queries, schema
from agentsdock.store.counting import Counts
from agentsdock.store.protocol import PutSession

KINDS = ("assistant_text", "tool_started", "raw_event", "process_started")
HIDDEN = st.sets(st.sampled_from(KINDS)).map(frozenset)


def append(db, number, kinds):
    events = tuple(event(kind=kind, session=sid(number)) for kind in kinds)
    unit = ledger.Unit(sid(number), events, (PutSession(chat(number)),))
    [done] = ledger.commit(db, [unit], 0)
    assert isinstance(done, ledger.Done)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.lists(st.sampled_from(KINDS), max_size=9),
            HIDDEN,
            st.integers(0, 20),
            st.none() | st.integers(0, 40),
        ),
        max_size=8,
    ),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_pages_count_as_a_plain_look_does_however_often_they_are_read(steps, block, kept):
    db = apsw.Connection(":memory:")
    schema.migrate(db)
    counts = Counts()
    written = {0: [], 1: []}
    before_block, before_kept = counting.BLOCK, counting.KEPT_BLOCKS
    counting.BLOCK, counting.KEPT_BLOCKS = block, kept
    try:
        for number, kinds, hidden, after, before in steps:
            append(db, number, kinds)
            written[number] += kinds
            _, count = queries.read_page(
                db,
                sid(number),
                after=after,
                before=before,
                limit=1,
                tail=True,
                without=hidden,
                max_bytes=10_000,
                counts=counts,
            )
            end = None if before is None else max(before - 1, 0)
            window = written[number][after:end]
            assert count == sum(kind not in hidden for kind in window)
    finally:
        counting.BLOCK, counting.KEPT_BLOCKS = before_block, before_kept


def test_what_is_kept_of_counts_is_bounded(monkeypatch):
    monkeypatch.setattr(counting, "BLOCK", 2)
    monkeypatch.setattr(counting, "KEPT_BLOCKS", 6)
    db = apsw.Connection(":memory:")
    schema.migrate(db)
    counts = Counts()
    for number in range(5):
        append(db, number, ["tool_started"] * 8)
        assert counts.of(db, number + 1, ("tool_started",), 1, 8) == 8
    assert sum(len(known) for known in counts._blocks.values()) <= 6


def test_a_block_that_was_not_full_or_not_asked_for_whole_is_counted_anew(monkeypatch):
    monkeypatch.setattr(counting, "BLOCK", 4)
    db = apsw.Connection(":memory:")
    schema.migrate(db)
    counts, tools = Counts(), ("tool_started",)
    append(db, 0, ["tool_started"] * 6)
    assert counts.of(db, 1, tools, 2, 6) == 5
    assert counts.of(db, 1, tools, 1, 3) == 3
    append(db, 0, ["tool_started"] * 6)
    assert counts.of(db, 1, tools, 1, 12) == 12
    assert counts.of(db, 1, tools, 2, 11) == 10
    assert counts.of(db, 1, ("raw_event",), 1, 12) == 0
