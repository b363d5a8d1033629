"""Pages of a chat, against the naive way to compute them."""

import time

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import chat as session
from store_samples import create, event, seqs, sid

from agentsdock.model.events import with_seq
from agentsdock.store import ledger, queries, schema
from agentsdock.store.counting import Counts
from agentsdock.store.ledger import Unit
from agentsdock.store.protocol import PutSession, Store
from agentsdock.store.sqlite import open_store

KINDS = ("assistant_text", "tool_started", "raw_event")


def database(events):
    """A database in memory with one chat, and another chat around it."""
    db = apsw.Connection(":memory:")
    schema.migrate(db)
    for number in (0, 1):
        ledger.commit(db, [Unit(sid(number), (), (PutSession(session(number)),))], 0.0)
    for one in events:
        for number in (0, 1):
            (done,) = ledger.commit(db, [Unit(sid(number), (one,), ())], 0.0)
            assert isinstance(done, ledger.Done)
    return db


def naive(events, after, before, limit, tail, without):
    rows = [
        (seq, with_seq(seq, one.body))
        for seq, one in enumerate(events, 1)
        if seq > after and (before is None or seq < before) and one.type not in without
    ]
    page = rows[-limit:] if tail else rows[:limit]
    return page, len(rows)


@settings(max_examples=200, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), max_size=12),
    after=st.integers(-2, 14),
    before=st.none() | st.integers(-2, 14),
    limit=st.integers(1, 14),
    tail=st.booleans(),
    without=st.frozensets(st.sampled_from((*KINDS, "never_seen"))),
)
def test_a_page_is_what_the_naive_way_gives(kinds, after, before, limit, tail, without):
    events = [event(str(number), kind=kind) for number, kind in enumerate(kinds)]
    page, count = queries.read_page(
        database(events),
        sid(),
        after=after,
        before=before,
        limit=limit,
        tail=tail,
        without=without,
        max_bytes=1_000_000,
        counts=Counts(),
    )
    expected = naive(events, max(after, 0), before, limit, tail, without)
    assert ([(row.seq, row.body) for row in page], count) == expected


async def fill(store, sizes, kind="assistant_text"):
    await create(store)
    await store.append(sid(), [event("x" * size, kind=kind) for size in sizes])


@pytest.mark.parametrize(("tail", "expected"), [(True, [4, 5]), (False, [1, 2])])
async def test_a_page_keeps_within_its_bytes(store: Store, tail, expected):
    await fill(store, [1000] * 5)
    page, count = await store.read_page(sid(), tail=tail, max_bytes=2500)
    assert (seqs(page), count) == (expected, 5)


@pytest.mark.parametrize("tail", [True, False])
async def test_one_event_over_the_bytes_is_a_page_of_its_own(store: Store, tail):
    await fill(store, [5000, 10, 5000])
    page, _ = await store.read_page(sid(), tail=tail, max_bytes=1000)
    assert seqs(page) == ([3] if tail else [1])


async def test_reading_on_goes_through_everything_once(store: Store):
    await fill(store, [10, 5000, 10, 10, 5000, 5000])
    after, pages = 0, []
    while page := await store.read_from(sid(), after, max_bytes=1000, max_rows=2):
        pages.append(seqs(page))
        after = page[-1].seq
    assert pages == [[1], [2], [3, 4], [5], [6]]


@pytest.fixture
async def long_chat(folder):
    """200,000 events of a kilobyte."""
    async with open_store(folder) as store:
        await create(store)
        group = [event("x" * 850) for _ in range(1999)]
        for _ in range(100):
            await store.append(sid(), [event("raw", kind="raw_event"), *group])
        yield store


async def test_the_tail_page_of_a_very_long_chat_is_quick(long_chat: Store):
    took = []
    for _ in range(5):
        start = time.perf_counter()
        page, count = await long_chat.read_page(sid(), without=frozenset({"raw_event"}))
        took.append(time.perf_counter() - start)
        assert (len(page), page[-1].seq, count) == (100, 200_000, 199_900)
    assert min(took) < 0.010
    assert await long_chat.read_page(sid(), limit=1) == (page[-1:], 200_000)


def test_counting_raw_events_reads_an_index_only():
    db = database([event(kind="raw_event"), event()])
    asked = []
    db.exec_trace = lambda cursor, sql, bindings: asked.append((sql, bindings)) or True
    queries._count(db, Counts(), 1, ("raw_event",), 1, 2)
    db.exec_trace = None
    ((sql, bindings),) = asked
    plan = db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()
    assert [row[3] for row in plan] == [
        "SEARCH events USING COVERING INDEX events_raw (chat=? AND seq>? AND seq<?)"
    ]
