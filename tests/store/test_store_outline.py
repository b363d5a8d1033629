"""The outline of a chat is read through indexes of its own, however much lies between."""

import time
from unittest.mock import ANY

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import chat, create, event, sid

from agentsdock.model.events import INNER_TYPES, TRACE_TYPES
from agentsdock.store import ledger, outline, schema
from agentsdock.store.protocol import PutSession, SessionGone, Span, Store

KINDS = ("turn_started", "assistant_text", "tool_started", "reasoning_summary", "turn_queued")


def database(kinds, migrations=schema.MIGRATIONS):
    db = apsw.Connection(":memory:")
    schema.migrate(db, migrations)
    events = [event(kind=kind) for kind in kinds]
    unit = ledger.Unit(sid(), tuple(events), (PutSession(chat()),))
    [done] = ledger.commit(db, [unit], 0)
    assert isinstance(done, ledger.Done)
    return db


@given(st.lists(st.sampled_from(KINDS), max_size=30), st.integers(0, 30), st.integers(1, 9))
def test_outline_and_trace_are_read_on_from_where_they_were_left(kinds, after, rows):
    db = database(kinds)
    numbered = list(enumerate(kinds, 1))
    outer, traced, at = [], [], after
    while at < len(kinds):
        found, reach = outline.outline(db, sid(), at, 1 << 20, rows)
        assert reach > at
        outer += [row.seq for row in found]
        at = reach
    assert outer == [seq for seq, kind in numbered if seq > after and kind not in INNER_TYPES]
    at, upto = after, len(kinds) - 3
    while found := outline.trace_types(db, sid(), at, upto, rows):
        assert len(found) <= rows
        traced += found
        at = found[-1][0]
    assert traced == [
        (seq, kind) for seq, kind in numbered if after < seq <= upto and kind in TRACE_TYPES
    ]


def test_the_indexes_leave_out_just_the_types_that_the_model_names():
    db = database([])
    inner = {kind for kind in (*INNER_TYPES, "turn_started", "new_type") if not _is_outer(db, kind)}
    assert inner == INNER_TYPES
    assert all(f"'{kind}'" in outline.TRACE for kind in TRACE_TYPES)
    assert outline.TRACE.count("'") == 2 * len(TRACE_TYPES)


def _is_outer(db, kind):
    sql = f"SELECT {outline.OUTLINE} FROM (SELECT ? AS type)"
    return bool(db.execute(sql, (kind,)).fetchone()[0])


async def test_a_span_is_read_at_both_ends(store: Store):
    await create(store)
    kinds = ["turn_started", "tool_started", *["assistant_text"] * 40, "turn_finished"]
    await store.append(sid(), [event(kind=kind) for kind in kinds])
    [span, inner] = await store.spans(sid(), [Span(1, len(kinds)), Span(3, 5)])
    assert [row.type for row in span[:2]] == ["turn_started", "tool_started"]
    assert span[-1].type == "turn_finished"
    assert len(span) == 2 + outline.SPAN_NEWEST_ROWS
    assert [row.seq for row in inner] == [3, 4, 5]


async def test_the_trace_of_a_run_holds_its_own_rows_only(store: Store):
    await create(store)
    runs = ["run_a", "run_b"]
    await store.append(sid(), [event(kind="tool_started", run_id=run) for run in runs * 3])
    rows, more = await store.trace(sid(), "run_a", (2, 6), limit=5)
    assert ([row.seq for row in rows], more) == ([3, 5], False)


async def test_a_page_of_a_trace_that_is_cut_says_so(store: Store):
    """By its rows or by its bytes: who reads on loses nothing."""
    await create(store)
    await store.append(sid(), [event("x" * 900, kind="tool_started", run_id="run_a")] * 4)
    seen, after, more = [], 0, True
    while more:
        rows, more = await store.trace(sid(), "run_a", (after + 1, 9), limit=3, max_bytes=2500)
        seen.append([row.seq for row in rows])
        after = rows[-1].seq
    assert seen == [[1, 2], [3, 4]]
    assert await store.trace(sid(), "run_a", (1, 9), limit=3) == (ANY, True)
    assert await store.trace(sid(), "run_a", (1, 9), limit=4) == (ANY, False)


async def test_spans_are_cut_to_the_bytes_of_a_page(store: Store):
    await create(store)
    await store.append(sid(), [event("x" * 900, kind="turn_started")] * 5)
    spans = [Span(seq, seq) for seq in (5, 4, 3, 2, 1)]
    read = await store.spans(sid(), spans, max_bytes=2500)
    assert [row.seq for rows in read for row in rows] == [5, 4]
    [one] = await store.spans(sid(), [Span(1, 5), Span(1, 1)], max_bytes=1)
    assert len(one) == 5


async def test_what_was_said_is_found_behind_any_number_of_tools(store: Store):
    await create(store)
    kinds = ["turn_started", *["assistant_text"] * 40, *["tool_started"] * 300]
    await store.append(sid(), [event(str(n), kind=kind) for n, kind in enumerate(kinds, 1)])
    [silent, spoken] = await store.spans(
        sid(), [Span(1, len(kinds)), Span(1, len(kinds), spoken=True)]
    )
    assert "assistant_text" not in {row.type for row in silent}
    said = [row.seq for row in spoken if row.type == "assistant_text"]
    assert said == list(range(10, 42))
    texts = await store.last_texts(sid(), [(1, len(kinds)), (1, 20), (42, 60), (1, 1)])
    assert [row and row.seq for row in texts] == [41, 20, None, None]


async def test_a_chat_that_is_gone_has_no_outline(store: Store):
    for read in (
        store.outline(sid(), 0),
        store.trace_types(sid(), 0, 9),
        store.spans(sid(), [Span(1, 2)]),
        store.last_texts(sid(), [(1, 2)]),
        store.trace(sid(), "run_a", (1, 2), limit=1),
        store.subagents(sid(), 0),
    ):
        with pytest.raises(SessionGone):
            await read


def test_a_database_of_an_earlier_version_gets_its_outline():
    before = schema.MIGRATIONS.index(schema._OUTLINE)
    kinds = ("turn_started", "assistant_text", "subagent_state")
    db = database(kinds, schema.MIGRATIONS[:before])
    schema.migrate(db)
    rows, reach = outline.outline(db, sid(), 0, 1 << 20, 10)
    assert ([row.seq for row in rows], reach) == ([1], 3)
    assert [row.seq for row in outline.subagents(db, sid(), 0, 1 << 20, 10)] == [3]


async def test_the_outline_of_a_very_long_chat_costs_what_its_turns_cost(store: Store):
    await create(store)
    inner = [event("x" * 850) for _ in range(1999)]
    for _ in range(50):
        await store.append(sid(), [event(kind="turn_started"), *inner])
    took = []
    for _ in range(3):
        start = time.perf_counter()
        rows, reach = await store.outline(sid(), 0)
        took.append(time.perf_counter() - start)
        assert (len(rows), reach) == (50, 100_000)
    assert min(took) < 0.010


def test_no_index_makes_an_append_build_a_table_of_its_own():
    """As SQLite would for each row, had a condition a list of more than two values."""
    steps = database([]).execute(
        "EXPLAIN INSERT INTO events (chat, seq, type, run_id, body) VALUES (?, ?, ?, ?, ?)",
        (9, 1, "assistant_text", None, b""),
    )
    assert "OpenEphemeral" not in {step[1] for step in steps}
