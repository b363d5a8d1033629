"""No space left: said as such, nothing half-written, and over as soon as there is space."""

import os
import pathlib
import subprocess
import sys

import pytest
import trio
import trio.testing
from store_samples import (
    chat,
    create,
    ended,
    event,
    everything,
    queued,
    run,
    seqs,
    sid,
    started,
    texts,
)

from agentsdock.store import ledger
from agentsdock.store.files import open_files
from agentsdock.store.ledger import Unit
from agentsdock.store.protocol import PutQueued, PutSession, StoreFull
from agentsdock.store.sqlite import SqliteStore


async def limit_pages(store: SqliteStore, spare: int) -> None:
    """Let the database grow by so many pages, and no further."""

    def limit(db):
        db.pragma("max_page_count", db.pragma("page_count") + spare)

    await store._in_writer(limit, abandon=False)


async def free_space(store: SqliteStore) -> None:
    await store._in_writer(lambda db: db.pragma("max_page_count", 1 << 30), abandon=False)


async def test_a_full_disk_is_said_and_over_without_a_restart(store: SqliteStore):
    await create(store)
    await store.append(sid(), [event("before")])
    await limit_pages(store, 2)
    with pytest.raises(StoreFull):
        await store.append(sid(), [event("x" * 100_000)], [PutQueued(queued())])
    assert texts(await everything(store, sid())) == ["before"]
    assert (await store.load()).queue == ()
    await free_space(store)
    assert seqs(await store.append(sid(), [event("after")])) == [2]
    assert texts(await everything(store, sid())) == ["before", "after"]


async def test_a_unit_that_does_not_fit_takes_no_other_with_it(store: SqliteStore):
    await create(store)
    await limit_pages(store, 4)
    outcomes = {}

    async def append(name, size):
        try:
            outcomes[name] = seqs(await store.append(sid(), [event(name + "x" * size)]))
        except StoreFull:
            outcomes[name] = "full"

    async with trio.open_nursery() as nursery:
        for name, size in {"a": 10, "b": 100_000, "c": 10, "d": 200_000, "e": 10}.items():
            nursery.start_soon(append, name, size)
            await trio.testing.wait_all_tasks_blocked()
    assert outcomes == {"a": [1], "b": "full", "c": [2], "d": "full", "e": [3]}


def test_a_group_that_does_not_fit_as_a_whole_is_tried_unit_by_unit(folder):
    opened = open_files(folder)
    db = opened.writer
    ledger.commit(db, [Unit(sid(), (), (PutSession(chat()),))], 0.0)
    db.pragma("max_page_count", db.pragma("page_count") + 4)
    units = [Unit(sid(), (event("x" * size),), ()) for size in (10, 100_000, 10)]
    outcomes = ledger.commit(db, units, 0.0)
    assert [isinstance(outcome, StoreFull) for outcome in outcomes] == [False, True, False]
    assert db.execute("SELECT seq FROM events").fetchall() == [(1,), (2,)]
    assert not db.in_transaction
    opened.close()


async def test_a_run_stays_open_until_its_end_can_be_written(store: SqliteStore):
    await create(store)
    await store.claim(run(), [started()])
    await limit_pages(store, 0)
    with pytest.raises(StoreFull):
        await store.finish(run(), [event("x" * 100_000, run=run().id), ended()])
    assert (await store.load()).open_runs == (run(),)
    await free_space(store)
    assert seqs(await store.finish(run(), [ended()])) == [2]


SCRIPT = """
import pathlib, resource, signal, sys
import trio
from agentsdock.store.protocol import StoreFull
from agentsdock.store.sqlite import open_store
from store_samples import create, event, everything, seqs, sid

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main(folder):
    async with open_store(folder) as store:
        await create(store)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        kept = 0
        try:
            while True:
                await store.append(sid(), [event("x" * 5000)])
                kept += 1
        except StoreFull:
            pass
        assert len(await everything(store, sid())) == kept > 10
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert seqs(await store.append(sid(), [event()])) == [kept + 1]
    async with open_store(folder) as store:
        assert seqs(await everything(store, sid())) == list(range(1, kept + 2))
    print("recovered")

trio.run(main, pathlib.Path(sys.argv[1]))
"""


def test_the_system_s_own_refusal_to_write_is_no_space_too(folder):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, search_path()))},
    )
    assert (done.stdout, done.returncode) == ("recovered\n", 0), done.stderr


def search_path():
    here = pathlib.Path(__file__).resolve().parent
    return here, here.parent.parent
