"""Group commit: order, isolation, cancellation, backpressure, and the way out."""

import threading

import pytest
import trio
import trio.testing
from store_samples import chat, create, event, everything, queued, run, seqs, sid, started, texts

from agentsdock.store import sqlite
from agentsdock.store.protocol import (
    PutQueued,
    PutSession,
    RunExists,
    StoreBusy,
    StoreClosed,
    StoreError,
)
from agentsdock.store.sqlite import SqliteStore, open_store


class HeldDisk:
    """Blocking work that begins only when it is let go, and how often it was asked for."""

    def __init__(self):
        self.gate = trio.Event()
        self.gate.set()
        self.reached = trio.Event()
        self.calls = 0

    def hold(self):
        self.gate = trio.Event()
        self.reached = trio.Event()

    async def __call__(self, work, /, *, abandon_on_cancel=False, limiter=None):
        self.calls += 1
        self.reached.set()
        await self.gate.wait()
        return await sqlite.run_in_thread(
            work, abandon_on_cancel=abandon_on_cancel, limiter=limiter
        )


@pytest.fixture
def disk():
    return HeldDisk()


@pytest.fixture
async def held(folder, disk):
    async with open_store(folder, run_blocking=disk) as store:
        yield store
        disk.gate.set()


async def test_what_waits_together_is_committed_in_one_transaction(held, disk):
    for number in range(40):
        await create(held, number)
    disk.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.append, sid(0), [event()])
        await disk.reached.wait()
        before = disk.calls
        for number in range(1, 40):
            nursery.start_soon(held.append, sid(number), [event()])
        await trio.testing.wait_all_tasks_blocked()
        disk.gate.set()
    assert disk.calls - before <= 2


async def test_a_failing_unit_harms_no_other_of_its_group(held, disk):
    await create(held)
    await held.claim(run(), [started()])
    disk.hold()
    outcomes = {}

    async def note(name, attempt):
        try:
            outcomes[name] = seqs(await attempt)
        except (StoreError, UnicodeError) as error:
            outcomes[name] = type(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(note, "a", held.append(sid(), [event("a")]))
        await disk.reached.wait()
        for name, attempt in {
            "b": held.append(sid(), [event("b1"), event("b2")]),
            "second run": held.claim(run(1), [started(1)], [PutQueued(queued())]),
            "c": held.append(sid(), [event("c")]),
            "no unicode": held.append(sid(), [event()], [PutSession(chat(title="\udc00"))]),
            "d": held.append(sid(), [event("d")]),
        }.items():
            nursery.start_soon(note, name, attempt)
            await trio.testing.wait_all_tasks_blocked()
        disk.gate.set()
    assert outcomes == {
        "a": [2],
        "b": [3, 4],
        "second run": RunExists,
        "c": [5],
        "no unicode": UnicodeEncodeError,
        "d": [6],
    }
    assert texts(await everything(held, sid())) == ["go", "a", "b1", "b2", "c", "d"]
    assert (await held.load()).queue == ()


async def test_units_take_effect_in_the_order_of_the_calls(store: SqliteStore):
    await create(store)
    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(store.append, sid(), [event(str(number))])
            await trio.testing.wait_all_tasks_blocked()
    assert texts(await everything(store, sid())) == [str(number) for number in range(30)]


async def test_a_commit_is_published_before_its_caller_goes_on(store: SqliteStore):
    await create(store)
    published = []
    store.on_commit = lambda *arguments: published.append(arguments)
    committed = await store.append(sid(), [event("one"), event("two")])
    ((session_id, rows, head),) = published
    assert (session_id, rows) == (sid(), committed)
    assert (head.seq, head.type) == (2, "assistant_text")


async def test_nothing_is_published_that_was_not_committed(store: SqliteStore):
    await create(store)
    await store.claim(run(), [started()])
    published = []
    store.on_commit = lambda *arguments: published.append(arguments)
    with pytest.raises(RunExists):
        await store.claim(run(1), [started(1)])
    await store.renew(run())
    await store.append(sid(), (), [PutSession(chat(title="x"))])
    assert published == []


async def test_a_cancelled_caller_s_unit_is_committed_and_published(held, disk):
    await create(held)
    published = []
    held.on_commit = lambda session_id, rows, head: published.extend(rows)
    disk.hold()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held.append, sid(), [event("first")])
            await disk.reached.wait()
            nursery.start_soon(held.append, sid(), [event("second")])
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    disk.gate.set()
    assert texts(await held.append(sid(), [event("third")])) == ["third"]
    assert texts(published) == ["first", "second", "third"]
    assert texts(await everything(held, sid())) == ["first", "second", "third"]


async def test_a_call_in_a_cancelled_scope_still_commits(store: SqliteStore):
    await create(store)
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.append(sid(), [event("last words")])
    await store.append(sid())
    assert texts(await everything(store, sid())) == ["last words"]


async def test_what_waits_for_a_stalled_disk_is_bounded(held, disk, monkeypatch):
    await create(held)
    monkeypatch.setattr(sqlite, "UNCOMMITTED_BYTES", 10_000)
    disk.hold()
    for _ in range(2):
        with trio.CancelScope() as impatient:
            impatient.cancel()
            await held.append(sid(), [event("x" * 4000)])
    with pytest.raises(StoreBusy):
        await held.append(sid(), [event("x" * 4000)])
    disk.gate.set()
    assert seqs(await held.append(sid(), [event()])) == [3]


async def test_a_unit_larger_than_the_bound_passes_alone(store: SqliteStore, monkeypatch):
    await create(store)
    monkeypatch.setattr(sqlite, "UNCOMMITTED_BYTES", 1000)
    assert seqs(await store.append(sid(), [event("x" * 100_000)])) == [1]


async def test_leaving_commits_what_was_accepted(folder):
    async with open_store(folder) as store:
        await create(store)
        for number in range(50):
            with trio.CancelScope() as impatient:
                impatient.cancel()
                await store.append(sid(), [event(str(number))])
    async with open_store(folder) as store:
        assert seqs(await everything(store, sid())) == list(range(1, 51))


async def test_a_cancelled_house_still_commits_what_was_accepted(folder):
    with trio.CancelScope() as scope:
        async with open_store(folder) as store, trio.open_nursery() as nursery:
            await create(store)
            scope.cancel()
            for number in range(50):
                nursery.start_soon(store.append, sid(), [event(str(number))])
    async with open_store(folder) as store:
        assert seqs(await everything(store, sid())) == list(range(1, 51))


async def test_during_a_cancelled_teardown_the_store_still_works(folder):
    with trio.CancelScope() as scope:
        async with open_store(folder) as store:
            await create(store)
            scope.cancel()
            with trio.CancelScope(shield=True):
                await store.append(sid(), [event("terminal")])
    async with open_store(folder) as store:
        assert texts(await everything(store, sid())) == ["terminal"]


async def test_a_closed_store_takes_no_more_work(folder):
    async with open_store(folder) as store:
        await create(store)
    with pytest.raises(StoreClosed):
        await store.append(sid(), [event()])
    with pytest.raises(StoreClosed):
        await store.read_from(sid(), 0)
    await store.aclose()


async def test_a_clean_exit_leaves_one_file_and_no_log(folder):
    async with open_store(folder) as store:
        await create(store)
        await store.append(sid(), [event("x" * 10_000)])
    assert sorted(path.name for path in folder.iterdir()) == [
        "agentsdock.db",
        "agentsdock.lock",
    ]


async def test_a_stuck_disk_does_not_hold_the_exit_for_ever(folder, autojump_clock):
    stuck = trio.Event()

    async def never(work, /, *, abandon_on_cancel=False, limiter=None):
        if isinstance(work, sqlite.partial):
            return work()
        stuck.set()
        return await trio.sleep_forever()

    told = []

    async def submit(store):
        try:
            await store.append(sid(), [event()])
        except StoreClosed as error:
            told.append(error)

    async with trio.open_nursery() as nursery:
        async with open_store(folder, run_blocking=never) as store:
            nursery.start_soon(submit, store)
            await stuck.wait()
            start = trio.current_time()
        assert trio.current_time() - start == pytest.approx(sqlite.CLOSE_SECONDS)
    assert len(told) == 1
    store._opened.close()


async def test_readers_do_not_wait_for_the_writer(held, disk):
    await create(held)
    await held.append(sid(), [event("before")])
    entered, go = threading.Event(), threading.Event()

    def commit_slowly(db, units, now):
        entered.set()
        go.wait()
        return original(db, units=units, now=now)

    original = sqlite.ledger.commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite.ledger, "commit", commit_slowly)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(held.append, sid(), [event("during")])
            await trio.to_thread.run_sync(entered.wait)
            assert texts(await held.read_from(sid(), 0)) == ["before"]
            go.set()


async def test_the_writer_does_not_wait_for_a_reader(store: SqliteStore):
    await create(store)
    entered, go = threading.Event(), threading.Event()

    def read_slowly(db):
        db.execute("BEGIN")
        before = db.execute("SELECT count(*) FROM events").fetchall()
        entered.set()
        go.wait()
        after = db.execute("SELECT count(*) FROM events").fetchall()
        db.execute("COMMIT")
        return before, after

    async with trio.open_nursery() as nursery:
        counts = []

        async def read():
            counts.append(await store._read(read_slowly))

        nursery.start_soon(read)
        await trio.to_thread.run_sync(entered.wait)
        assert seqs(await store.append(sid(), [event()])) == [1]
        go.set()
    assert counts == [([(0,)], [(0,)])]


_ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"


async def test_a_cancelled_read_is_broken_off_and_the_next_ones_are_right(store: SqliteStore):
    await create(store)
    await store.append(sid(), [event("there")])
    running = trio.Event()

    def endless(db):
        trio.from_thread.run_sync(running.set)
        return db.execute(_ENDLESS).fetchall()

    for _ in range(20):
        running = trio.Event()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store._read, endless)
                await running.wait()
                scope.cancel()
        assert texts(await store.read_from(sid(), 0)) == ["there"]


async def test_many_cancelled_reads_do_not_disturb_others(store: SqliteStore):
    await create(store)
    await store.append(sid(), [event(str(number)) for number in range(200)])
    wrong = []

    async def hasty():
        for _ in range(30):
            with trio.move_on_after(0.0002):
                await store.read_from(sid(), 0)

    async def patient():
        for _ in range(30):
            page = await store.read_from(sid(), 0)
            if seqs(page) != list(range(1, 201)):
                wrong.append(page)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(hasty)
            nursery.start_soon(patient)
    assert wrong == []


async def test_a_bug_in_a_follower_ends_the_house_loudly(folder):
    def broken(*_):
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError, StoreClosed, flatten_subgroups=True):
        async with open_store(folder) as store:
            await create(store)
            store.on_commit = broken
            await store.append(sid(), [event()])
    async with open_store(folder) as store:
        assert seqs(await everything(store, sid())) == [1]
