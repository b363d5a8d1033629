"""Watchers: gap-free, in order, once; however slow, fast or late."""

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import create, event, seqs, sid

from agentsdock.model.events import Committed
from agentsdock.model.sessions import Head
from agentsdock.store import feed as feed_module
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import DropSession, SessionGone


class Ledger:
    """A store that only reads: its rows, and how often it was asked."""

    def __init__(self):
        self.rows = []
        self.reads = 0
        self.gone = False
        self.before_answer = trio.lowlevel.checkpoint

    async def read_from(self, session_id, after, *, max_bytes=256 * 1024, max_rows=1000):
        self.reads += 1
        rows = list(self.rows)
        await self.before_answer()
        if self.gone:
            raise SessionGone
        page, size = [], 0
        for row in rows[after : after + max_rows]:
            if page and size + len(row.body) > max_bytes:
                break
            page.append(row)
            size += len(row.body)
        return page


class House:
    """A ledger, its feed, and the commits that go through both."""

    def __init__(self):
        self.ledger = Ledger()
        self.feed = Feed(self.ledger)

    def write(self, *sizes):
        """Rows reach the disk; they are published later, as in the real store."""
        first = len(self.ledger.rows) + 1
        rows = [
            Committed(seq, "assistant_text", None, b"x" * size)
            for seq, size in enumerate(sizes, first)
        ]
        self.ledger.rows += rows
        return rows

    def publish(self, rows):
        self.feed.publish(sid(), rows, Head(seq=rows[-1].seq))

    def commit(self, *sizes):
        self.publish(self.write(*sizes))


@pytest.fixture
def house():
    return House()


async def take(watcher, upto):
    found = []
    while not found or found[-1] < upto:
        found += seqs(await watcher.next())
    return found


async def test_a_watcher_gets_what_was_there_and_what_comes(house):
    house.commit(10, 10, 10)
    with house.feed.watch(sid(), 1) as watcher:
        assert seqs(await watcher.next()) == [2, 3]
        async with trio.open_nursery() as nursery:

            async def follow():
                assert seqs(await watcher.next()) == [4, 5]

            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            house.commit(10, 10)
        assert watcher.cursor == 5


async def test_nothing_is_missed_between_the_last_read_and_the_first_wait(house):
    house.commit(10)
    with house.feed.watch(sid(), 0) as watcher:
        assert seqs(await watcher.next()) == [1]

        async def commit_during_the_read():
            house.commit(10)
            await trio.lowlevel.checkpoint()

        house.ledger.before_answer = commit_during_the_read
        with trio.fail_after(1):
            assert seqs(await watcher.next()) == [2]


async def test_what_is_read_before_it_is_published_comes_once(house):
    with house.feed.watch(sid(), 0) as watcher:
        rows = house.write(10, 10)
        assert seqs(await watcher.next()) == [1, 2]
        house.publish(rows)
        house.commit(10)
        assert seqs(await watcher.next()) == [3]


async def test_a_live_watcher_needs_no_reads(house):
    with house.feed.watch(sid(), 0) as watcher:
        async with trio.open_nursery() as nursery:
            found = []

            async def follow():
                found.extend(await take(watcher, 1000))

            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(500):
                house.commit(10, 10)
                await trio.lowlevel.checkpoint()
        assert found == list(range(1, 1001))
    assert house.ledger.reads == 1


async def test_who_lags_behind_the_tail_reads_the_store_and_then_joins_again(house, monkeypatch):
    monkeypatch.setattr(feed_module, "TAIL_BYTES", 100)
    monkeypatch.setattr(feed_module, "PAGE_BYTES", 40)
    with house.feed.watch(sid(), 0) as slow:
        house.commit(10)
        await slow.next()
        for _ in range(50):
            house.commit(10, 10)
        assert await take(slow, 101) == list(range(2, 102))
        reads = house.ledger.reads
        assert reads > 5
        house.commit(10)
        assert seqs(await slow.next()) == [102]
        assert house.ledger.reads == reads


async def test_who_is_far_behind_within_the_tail_gets_a_page_at_a_time(house):
    with house.feed.watch(sid(), 0) as watcher:
        house.commit(10)
        await watcher.next()
        for _ in range(90):
            house.commit(10_000)
        pages = []
        while watcher.cursor < 91:
            pages.append(sum(len(row.body) for row in await watcher.next()))
        assert len(pages) > 2
        assert max(pages) < feed_module.PAGE_BYTES + 10_000
    assert house.ledger.reads == 0


async def test_an_event_larger_than_the_tail_reaches_every_watcher(house, monkeypatch):
    monkeypatch.setattr(feed_module, "TAIL_BYTES", 100)
    with house.feed.watch(sid(), 0) as one, house.feed.watch(sid(), 0) as other:
        for watcher in (one, other):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take, watcher, 1)
                house.commit(1000)
        house.commit(1000)
        assert seqs(await one.next())[-1] == len(house.ledger.rows)


async def test_the_tail_is_bounded_and_kept_only_while_somebody_watches(house):
    with house.feed.watch(sid(), 0):
        for _ in range(300):
            house.commit(10_000)
        (channel,) = house.feed._channels.values()
        held = sum(len(row.body) for group in channel.tail for row in group)
        assert feed_module.TAIL_BYTES - 10_000 < held <= feed_module.TAIL_BYTES
        assert held == channel.size
    assert house.feed._channels == {}
    house.commit(10)
    assert house.feed._channels == {}


async def test_watchers_of_one_chat_share_their_tail_and_leave_one_by_one(house):
    with house.feed.watch(sid(), 0) as one:
        with house.feed.watch(sid(), 0) as other:
            house.commit(10)
            assert await one.next() == await other.next()
        house.commit(10)
        assert seqs(await one.next()) == [2]


async def test_a_cancelled_wait_takes_nothing(house):
    house.commit(10)
    with house.feed.watch(sid(), 0) as watcher:
        with trio.CancelScope() as scope:
            scope.cancel()
            await watcher.next()
        assert watcher.cursor == 0
        assert seqs(await watcher.next()) == [1]
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watcher.next)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        house.commit(10)
        assert seqs(await watcher.next()) == [2]


async def test_a_dropped_chat_ends_its_watchers_after_what_is_left(house):
    with house.feed.watch(sid(), 0) as reader, house.feed.watch(sid(), 0) as waiter:
        house.commit(10)
        await waiter.next()
        async with trio.open_nursery() as nursery:

            async def follow():
                with pytest.raises(trio.EndOfChannel):
                    await waiter.next()

            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            house.ledger.gone = True
            house.feed.drop(sid())
        assert seqs(await reader.next()) == [1]
        with pytest.raises(trio.EndOfChannel):
            await reader.next()


async def test_who_lags_behind_a_dropped_chat_gets_no_gap_but_the_end(house, monkeypatch):
    monkeypatch.setattr(feed_module, "TAIL_BYTES", 100)
    with house.feed.watch(sid(), 0) as watcher:
        for _ in range(50):
            house.commit(10)
        house.ledger.gone = True
        house.feed.drop(sid())
        with pytest.raises(trio.EndOfChannel):
            await watcher.next()


async def test_who_comes_after_the_drop_is_told(house):
    house.ledger.gone = True
    with house.feed.watch(sid(), 0) as watcher, pytest.raises(trio.EndOfChannel):
        await watcher.next()


async def test_a_cursor_ahead_of_the_chat_hears_what_follows_it_only(house):
    house.commit(10)
    with house.feed.watch(sid(), 3) as watcher:
        async with trio.open_nursery() as nursery:
            found = []

            async def follow():
                found.extend(seqs(await watcher.next()))

            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(3):
                house.commit(10)
                await trio.testing.wait_all_tasks_blocked()
        assert found == [4]


async def test_other_chats_are_not_heard(house):
    with house.feed.watch(sid(1), 0):
        house.commit(10)
        assert house.feed._channels[sid(1)].last == 0


@settings(max_examples=150, deadline=None)
@given(
    groups=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=4), max_size=12),
    start=st.integers(0, 5),
    naps=st.lists(st.integers(0, 4), min_size=1, max_size=8),
)
def test_whatever_the_pace_everything_comes_once_and_in_order(groups, start, naps):
    total = sum(map(len, groups))
    if start > total:
        return

    async def main():
        house = House()

        async def commit():
            for turn, group in enumerate(groups):
                rows = house.write(*group)
                for _ in range(naps[turn % len(naps)] // 2):
                    await trio.lowlevel.checkpoint()
                house.publish(rows)
                await trio.lowlevel.checkpoint()

        async def follow():
            found, turn = [], 0
            with house.feed.watch(sid(), start) as watcher:
                while watcher.cursor < total:
                    found += seqs(await watcher.next())
                    turn += 1
                    for _ in range(naps[turn % len(naps)]):
                        await trio.lowlevel.checkpoint()
            assert found == list(range(start + 1, total + 1))

        with trio.fail_after(5), pytest.MonkeyPatch.context() as patch:
            patch.setattr(feed_module, "TAIL_BYTES", 100)
            patch.setattr(feed_module, "PAGE_BYTES", 50)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit)
                nursery.start_soon(follow)

    trio.run(main)


async def test_through_the_real_store_nothing_is_lost_or_doubled(store):
    hub = Feed(store)
    store.on_commit = hub.publish
    await create(store)
    total = 2000
    done = []

    async def produce(part):
        for _ in range(total // 8):
            await store.append(sid(), [event("x" * (100 * part))])

    async def follow(start, slow):
        found = []
        with hub.watch(sid(), start) as watcher:
            while watcher.cursor < total:
                found += seqs(await watcher.next())
                for _ in range(slow):
                    await trio.lowlevel.checkpoint()
        assert found == list(range(start + 1, total + 1))
        done.append(start)

    async with trio.open_nursery() as nursery:
        for part in range(8):
            nursery.start_soon(produce, part)
        for start, slow in ((0, 0), (0, 30), (500, 0), (1999, 5)):
            nursery.start_soon(follow, start, slow)
        # One that reconnects all the time, from where it was.
        cursor = 0
        while cursor < total:
            with hub.watch(sid(), cursor) as watcher:
                page = await watcher.next()
                assert page[0].seq == cursor + 1
                cursor = watcher.cursor
    assert len(done) == 4


async def test_dropping_a_chat_in_the_real_store_ends_its_watchers(store):
    hub = Feed(store)
    store.on_commit = hub.publish
    await create(store)
    with hub.watch(sid(), 0) as watcher:
        await store.append(sid(), [event()])
        await store.append(sid(), (), [DropSession(sid())])
        hub.drop(sid())
        assert seqs(await watcher.next()) == [1]
        with pytest.raises(trio.EndOfChannel):
            await watcher.next()
