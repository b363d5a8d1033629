"""The index follows the events, whatever happens to it; the store goes on."""

import os
import pathlib
import subprocess
import sys
import threading
import time

import apsw
import pytest
import trio
from store_samples import create, event, seqs, sid
from test_store_search import database, found, index, settle

from agentsdock.store import indexing, search
from agentsdock.store.engine import transaction
from agentsdock.store.files import DATABASE
from agentsdock.store.indexing import RENEWALS, Indexer
from agentsdock.store.protocol import DropSession, Found
from agentsdock.store.sqlite import open_store

ALL = frozenset(sid(number) for number in range(30))
JUNK = "x'ffffffffffff'"
DAMAGE = {
    "words": f"UPDATE search_data SET block = {JUNK} WHERE id > 10",
    "structure": "UPDATE search_data SET block = x'ff' WHERE id = 10",
    "no structure": "DELETE FROM search_data WHERE id = 10",
    "no words": "DELETE FROM search_data WHERE id > 10",
    "no pages": "DELETE FROM search_idx",
    "nothing": "DELETE FROM search_data",
    "no table": "DROP TABLE search_data",
    "no lengths": "DROP TABLE search_docsize",
}


async def complete(store, query, chat=0):
    """The hits, once the index says that it has all."""
    with trio.fail_after(20):
        while True:
            answer = await store.search_chat(sid(chat), query, 1000)
            if answer.complete:
                return len(answer.hits)
            await trio.sleep(0.01)


async def filled(folder, rows=120):
    async with open_store(folder) as store:
        for number in range(2):
            await create(store, number)
            await store.append(sid(number), [event("needle") for _ in range(rows)])
        await settle(store, folder)


def harm(folder, sql):
    db = apsw.Connection(str(folder / DATABASE))
    db.execute(sql)
    db.close()


@pytest.mark.parametrize("sql", DAMAGE.values(), ids=DAMAGE)
async def test_however_it_is_damaged_it_is_built_anew(folder, sql):
    await filled(folder)
    harm(folder, sql)
    async with open_store(folder) as store:
        await store.append(sid(), [event("needle")])
        with trio.fail_after(20):
            while await complete(store, "needle") != 121:
                await trio.sleep(0.01)
        assert await complete(store, "needle", 1) == 120
        assert not store.set_aside


async def test_a_deleted_chat_leaves_even_where_the_index_is_damaged(folder):
    await filled(folder)
    harm(folder, DAMAGE["words"])
    async with open_store(folder) as store:
        await store.append(sid(), (), [DropSession(sid())])
        db = await settle(store, folder)
        with trio.fail_after(20):
            while db.execute("SELECT count(*) FROM dropped WHERE NOT purged").fetchone()[0]:
                await trio.sleep(0.01)
        assert await complete(store, "needle", 1) == 120
        assert db.execute("SELECT count(*) FROM events").fetchone() == (120,)


def test_what_damages_it_each_time_is_not_tried_for_ever(monkeypatch):
    db = database(["needle"])
    tried = []

    def broken(db):
        tried.append(db)
        raise apsw.CorruptError("always")

    monkeypatch.setattr(search, "index_some", broken)
    indexer = Indexer()
    while indexer.step(db):
        pass
    assert len(tried) == RENEWALS + 1
    assert indexer.damaged
    assert not indexer.step(db)
    assert len(tried) == RENEWALS + 1


async def test_an_index_that_was_given_up_makes_no_search_complete(folder, monkeypatch):
    await filled(folder)
    monkeypatch.setattr(indexing, "RENEWALS", 0)
    harm(folder, DAMAGE["no words"])
    async with open_store(folder) as store:
        assert not (await store.search_chat(sid(), "needle", 10)).complete
        assert seqs(await store.append(sid(), [event("needle")])) == [121]
        assert not (await store.search_chat(sid(), "needle", 10)).complete
        assert not (await store.search_all("needle", ALL, 10)).complete


async def test_an_index_that_cannot_be_written_ends_nothing(folder, monkeypatch):
    def full(db):
        raise apsw.FullError("disk full")

    async with open_store(folder) as store:
        await create(store)
        monkeypatch.setattr(search, "FRESH_BYTES", 10)
        monkeypatch.setattr(search, "index_some", full)
        for number in range(1, 4):
            assert seqs(await store.append(sid(), [event("needle")])) == [number]


async def test_a_writer_that_is_never_quiet_keeps_its_index_near(folder, monkeypatch):
    monkeypatch.setattr(search, "FRESH_BYTES", 100_000)
    monkeypatch.setattr("agentsdock.store.sqlite.QUIET_SECONDS", 1000)
    async with open_store(folder) as store:
        await create(store)
        for _ in range(60):
            await store.append(sid(), [event("x" * 1000) for _ in range(10)])
        assert (await store.search_chat(sid(), "nothing", 10)).complete
        db = apsw.Connection(str(folder / DATABASE))
        [(mark,)] = db.execute("SELECT seq FROM search_marks").fetchall()
        assert mark >= 500


async def test_a_long_search_holds_up_neither_reads_nor_appends(folder, monkeypatch):
    inside, go_on = trio.Event(), threading.Event()

    def slow(db, *arguments):
        trio.from_thread.run_sync(inside.set)
        go_on.wait(20)
        return Found([], True)

    async with open_store(folder) as store, trio.open_nursery() as nursery:
        await create(store)
        monkeypatch.setattr(search, "search_chat", slow)
        nursery.start_soon(store.search_chat, sid(), "word", 10)
        await inside.wait()
        with trio.fail_after(10):
            await store.append(sid(), [event("one")])
            assert seqs(await store.read_from(sid(), 0)) == [1]
        go_on.set()


def test_an_event_that_cannot_be_read_is_passed_over():
    db = database(["needle", "needle", "needle"])
    db.execute("UPDATE events SET body = x'7b22' WHERE seq = 2")
    assert found(db, "needle") == [3, 1]
    index(db)
    assert found(db, "needle") == [3, 1]


def test_rows_that_are_missing_do_not_stop_the_other_chats():
    db = database(["needle"], ["needle"])
    db.execute("DELETE FROM events WHERE chat = 1")
    index(db)
    assert found(db, "needle") == []
    assert found(db, "needle", 1) == [1]
    assert db.execute("SELECT count(*) FROM search_docsize").fetchone() == (1,)


def test_a_chat_that_is_deleted_between_two_steps_is_indexed_no_further(monkeypatch):
    monkeypatch.setattr(search, "STEP_ROWS", 1)
    db = database(["needle"] * 4, ["needle"] * 4)
    index(db, 2)
    db.execute("DELETE FROM sessions WHERE chat = 1")
    index(db)
    assert found(db, "needle", 1) == [4, 3, 2, 1]
    hits = search.search_all(db, "needle", ALL, 10).hits
    assert [(hit.session_id, hit.count) for hit in hits] == [(sid(1), 4)]
    assert db.execute("SELECT count(*) FROM search_docsize").fetchone() == (6,)
    with transaction(db):
        assert search.purge(db, 1, 100)
        assert not search.purge(db, 1, 100)
    assert db.execute("SELECT count(*) FROM search_docsize").fetchone() == (4,)


def test_the_latest_chats_come_first_and_no_more_than_were_asked_for():
    db = database(*(["needle", f"needle {number}"] for number in range(30)))
    index(db, 11)
    hits = search.search_all(db, "needle", ALL - {sid(29)}, 5).hits
    assert len(hits) == 5
    assert {hit.event.seq for hit in hits} == {2}
    assert sid(29) not in {hit.session_id for hit in hits}


def test_many_words_half_characters_and_signs_are_no_error():
    db = database(["a b \N{REPLACEMENT CHARACTER} c"])
    for query in ("a " * 250, '"' * 500, '"a" ' * 125, "\ud83da", "\udc00\ud83d", "^a", "{a b}: c"):
        search.search_chat(db, sid(), query, 10)
        search.search_all(db, query, ALL, 10)


KILLED = """
import os, pathlib, sys
import trio
from agentsdock.store import search
from agentsdock.store.sqlite import open_store
from store_samples import create, event, sid

search.STEP_ROWS = 3
done = search.index_some

def told(db):
    os.write(1, b"step\\n")
    return done(db)

search.index_some = told

async def main(folder):
    async with open_store(folder) as store:
        if not (await store.load()).sessions:
            await create(store)
            await store.append(sid(), [event("needle %d" % n) for n in range(400)])
        await trio.sleep_forever()

trio.run(main, pathlib.Path(sys.argv[1]))
"""


@pytest.mark.chaos
async def test_a_kill_amid_indexing_loses_and_doubles_no_hit(folder):
    here = pathlib.Path(__file__).resolve().parent
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent.parent}"}
    for life in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, env=environment
        ) as indexer:
            for count, _ in enumerate(indexer.stdout):
                if count == 2 + life:
                    indexer.kill()
    async with open_store(folder) as store:
        assert store.set_aside is None
        found = (await store.search_chat(sid(), "needle", 1000)).hits
        assert [hit.event.seq for hit in found] == list(range(400, 0, -1))
        await settle(store, folder)
        assert await complete(store, "needle") == 400


def test_twenty_thousand_events_that_are_not_indexed_are_searched_in_seconds():
    words = "the quick brown fox jumps over a lazy dog and some more words to read "
    db = database([f"{words * 8}{number}" for number in range(20_000)])
    began = time.perf_counter()
    assert found(db, "19999") == [20_000]
    assert time.perf_counter() - began < 5
    assert search.search_chat(db, sid(), "19999", 10).complete
