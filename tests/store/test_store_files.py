"""The folder: private from the first byte, one server at a time, damage set aside."""

import fcntl
import os
import stat
import subprocess
import sys
import time
from functools import partial

import apsw
import pytest
import trio
from attrs import evolve
from store_samples import chat, create, ended, event, qid, queued, run, seqs, sid, started, texts

from agentsdock.store import files, ledger, schema
from agentsdock.store.engine import BUSY_MS, log_bytes, truncate_log
from agentsdock.store.files import DATABASE, LOCK, open_files
from agentsdock.store.protocol import (
    DropSession,
    PutQueued,
    PutSession,
    SetAside,
    StoreBusy,
    StoreError,
    StoreInUse,
    StoreTooNew,
)
from agentsdock.store.sqlite import open_store


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    old = os.umask(0)

    def change(value):
        os.umask(value)

    yield change
    os.umask(old)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])
async def test_files_are_private_whatever_the_umask(folder, umask, mask):
    umask(mask)
    async with open_store(folder) as store:
        await create(store)
        found = {path.name: mode(path) for path in folder.iterdir()}
        assert mode(folder) == 0o700
    umask(0o022)
    assert found == dict.fromkeys((DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LOCK), 0o600)


def test_files_are_private_from_their_first_byte(folder, umask, monkeypatch):
    umask(0)
    made = []
    original = os.open

    def note(path, flags, mode=0o777, **more):
        descriptor = original(path, flags, mode, **more)
        made.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", note)
    open_files(folder).close()
    assert set(made) == {0o700, 0o600}


async def test_a_loose_folder_and_loose_files_are_closed_to_others(folder):
    async with open_store(folder) as store:
        await create(store)
    folder.chmod(0o755)
    (folder / DATABASE).chmod(0o644)
    async with open_store(folder):
        assert mode(folder) == 0o700
        assert mode(folder / DATABASE) == 0o600


def test_a_shared_folder_is_refused_and_left_as_it_is(folder):
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(StoreError, match="not ours alone"):
        open_files(folder)
    assert mode(folder) == 0o1777


@pytest.mark.parametrize("name", [DATABASE, LOCK])
@pytest.mark.parametrize("planted", ["link", "fifo"])
def test_a_planted_link_or_pipe_is_refused_and_not_followed(folder, tmp_path, name, planted):
    folder.mkdir(0o700)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if planted == "link":
        (folder / name).symlink_to(victim)
    else:
        os.mkfifo(folder / name)
    with pytest.raises(StoreError):
        open_files(folder)
    assert victim.read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use the folder"):
        open_files(tmp_path / "file" / "state")


async def test_a_second_server_on_the_folder_is_refused(folder):
    async with open_store(folder) as store:
        await create(store)
        with pytest.raises(StoreInUse, match=f"process {os.getpid()}"):
            await trio.to_thread.run_sync(open_files, folder)
        await store.append(sid(), [event()])
    open_files(folder).close()


HOLD = """
import pathlib, subprocess, sys
from agentsdock.store.files import open_files
opened = open_files(pathlib.Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_the_lock_dies_with_its_holder_and_not_with_its_children(folder):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(StoreInUse, match=f"process {holder.pid}"):
                open_files(folder)
            holder.kill()
            holder.wait()
            os.kill(child, 0)
            open_files(folder).close()
        finally:
            os.kill(child, 9)


def test_our_own_lock_is_a_lock_of_the_kernel(folder):
    opened = open_files(folder)
    with open(folder / LOCK) as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    opened.close()


def test_every_pragma_is_in_force(folder):
    opened = open_files(folder)
    for connection in (opened.writer, opened.reader):
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("page_size") == 4096
        assert connection.pragma("busy_timeout") == 10_000
    assert opened.writer.pragma("wal_autocheckpoint") == 1000
    assert opened.writer.pragma("journal_size_limit") == 16 * 1024 * 1024
    with pytest.raises(apsw.ReadOnlyError):
        opened.reader.execute("DELETE FROM events")
    opened.close()


async def filled(folder, number=50):
    async with open_store(folder) as store:
        await create(store)
        await store.append(sid(), [event("x" * 1000) for _ in range(number)])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != LOCK}


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda data: b"not a database, but text" * 100, id="text"),
        pytest.param(lambda data: data[:100] + b"\xff" * (len(data) - 100), id="pages"),
        pytest.param(lambda data: data[:4096] + bytes(len(data) - 4096), id="zeros"),
        pytest.param(lambda data: data[: 4096 * 3], id="cut"),
        pytest.param(lambda data: b"\0" * len(data), id="blank"),
    ],
)
async def test_a_damaged_database_is_set_aside_and_a_new_one_begun(folder, harm):
    await filled(folder)
    database = folder / DATABASE
    damaged = harm(database.read_bytes())
    database.write_bytes(damaged)
    async with open_store(folder) as store:
        assert store.set_aside is not None
        assert store.set_aside.parent == folder
        assert store.set_aside.name.startswith(f"{DATABASE}.damaged-")
        assert store.set_aside.read_bytes() == damaged
        assert mode(store.set_aside) == 0o600
        assert (await store.load()).sessions == ()
        await create(store)
    async with open_store(folder) as store:
        assert store.set_aside is None
        assert len((await store.load()).sessions) == 1


async def test_what_was_set_aside_before_is_never_overwritten(folder):
    for number in range(3):
        folder.mkdir(0o700, exist_ok=True)
        (folder / DATABASE).write_bytes(b"damage %d" % number)
        async with open_store(folder) as store:
            assert store.set_aside is not None
    kept = sorted(path.read_bytes() for path in folder.glob(f"{DATABASE}.damaged-*"))
    assert kept == [b"damage 0", b"damage 1", b"damage 2"]


async def test_a_log_without_its_database_is_set_aside_and_not_lost(folder):
    folder.mkdir(0o700)
    (folder / f"{DATABASE}-wal").write_bytes(b"of an earlier life")
    async with open_store(folder) as store:
        assert store.set_aside is not None
        aside = store.set_aside.with_name(store.set_aside.name + "-wal")
        assert aside.read_bytes() == b"of an earlier life"


async def test_an_empty_file_is_a_fresh_database(folder):
    folder.mkdir(0o700)
    (folder / DATABASE).touch()
    async with open_store(folder) as store:
        assert store.set_aside is None
        await create(store)


async def test_a_sound_database_is_not_set_aside(folder):
    await filled(folder)
    async with open_store(folder) as store:
        assert store.set_aside is None
        assert seqs(await store.append(sid(), [event()])) == [51]


async def test_a_newer_database_is_refused_and_not_touched(folder):
    await filled(folder)
    connection = apsw.Connection(str(folder / DATABASE))
    connection.pragma("user_version", len(schema.MIGRATIONS) + 1)
    connection.close()
    before = contents(folder)
    known = len(schema.MIGRATIONS)
    with pytest.raises(StoreTooNew, match=f"version {known + 1} and this release knows {known}"):
        await trio.to_thread.run_sync(open_files, folder)
    assert contents(folder) == before


async def test_a_newer_database_with_a_log_is_refused_byte_for_byte(folder, tmp_path):
    await filled(folder)
    connection = apsw.Connection(str(folder / DATABASE))
    connection.pragma("user_version", len(schema.MIGRATIONS) + 1)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.execute("CREATE TABLE later (x)")
    crashed = tmp_path / "crashed"
    crashed.mkdir(0o700)
    for name in (DATABASE, f"{DATABASE}-wal"):
        (crashed / name).write_bytes((folder / name).read_bytes())
    connection.close()
    before = contents(crashed)
    with pytest.raises(StoreTooNew):
        await trio.to_thread.run_sync(open_files, crashed)
    assert contents(crashed) == before


LATER = (
    "ALTER TABLE sessions ADD COLUMN colour TEXT",
    "UPDATE sessions SET colour = 'red'",
)


async def test_a_later_step_is_taken_once_and_keeps_what_is_there(folder):
    await filled(folder)
    both = [*schema.MIGRATIONS, LATER]
    for _ in range(2):
        opened = await trio.to_thread.run_sync(partial(open_files, folder, both))
        assert schema.version(opened.writer) == len(both)
        assert opened.writer.execute("SELECT id, colour FROM sessions").fetchall() == [
            (sid(), "red")
        ]
        assert opened.writer.execute("SELECT count(*) FROM events").fetchall() == [(50,)]
        opened.close()
    with pytest.raises(StoreTooNew):
        await trio.to_thread.run_sync(open_files, folder)


async def test_a_step_that_fails_leaves_the_version_before_it(folder):
    await filled(folder)
    broken = [*schema.MIGRATIONS, (LATER[0], "INSERT INTO nowhere VALUES (1)")]
    with pytest.raises(StoreError, match="nowhere"):
        await trio.to_thread.run_sync(partial(open_files, folder, broken))
    async with open_store(folder) as store:
        assert store.set_aside is None
        assert len((await store.load()).sessions) == 1
    mended = [*schema.MIGRATIONS, LATER]
    opened = await trio.to_thread.run_sync(partial(open_files, folder, mended))
    assert schema.version(opened.writer) == len(mended)
    opened.close()


async def test_the_version_is_in_the_file_and_not_only_in_its_log(folder):
    opened = await trio.to_thread.run_sync(open_files, folder)
    head = (folder / DATABASE).read_bytes()[:100]
    assert int.from_bytes(head[60:64], "big") == len(schema.MIGRATIONS)
    opened.close()


def execute(folder, sql, *bindings):
    connection = apsw.Connection(str(folder / DATABASE))
    rows = connection.execute(sql, bindings).fetchall()
    connection.close()
    return rows


async def test_a_permission_mode_that_nobody_knows_becomes_the_default_and_is_saved(folder):
    async with open_store(folder) as store:
        for number, found in enumerate(("yolo", "plan", "default")):
            await create(store, number, cursor_permission_mode=found, title=found)
    execute(
        folder,
        "UPDATE sessions SET body = CAST(json_set(body, '$.cursor_permission_mode', 7) AS BLOB)"
        " WHERE id = ?",
        sid(2),
    )
    async with open_store(folder) as store:
        modes = [one.cursor_permission_mode for one in (await store.load()).sessions]
    assert modes == ["default", "plan", "default"]
    stored = execute(
        folder, "SELECT json_extract(body, '$.cursor_permission_mode') FROM sessions ORDER BY chat"
    )
    assert stored == [("default",), ("plan",), ("default",)]


async def test_fields_of_a_later_release_are_ignored(folder):
    async with open_store(folder) as store:
        await create(store)
    execute(folder, "UPDATE sessions SET body = CAST(json_set(body, '$.later', 1) AS BLOB)")
    async with open_store(folder) as store:
        assert (await store.load()).sessions == (chat(),)


async def test_rows_that_cannot_be_read_are_set_aside_and_the_others_go_on(folder):
    async with open_store(folder) as store:
        for number in range(3):
            await create(store, number)
        for number in range(2):
            await store.claim(run(number, session=number), [started(number)])
        await store.append(sid(), (), [PutQueued(queued(0)), PutQueued(queued(1))])
        await store.append(sid(2), (), [PutQueued(queued(2, session=2))])
    execute(folder, "UPDATE sessions SET body = x'ff00' WHERE id = ?", sid(2))
    execute(
        folder,
        "UPDATE queue SET body = CAST(json_set(body, '$.prompt', 5) AS BLOB) WHERE id = ?",
        qid(1),
    )
    execute(folder, "UPDATE runs SET body = x'7b7d' WHERE id = ?", run(0).id)
    async with open_store(folder) as store:
        loaded = await store.load()
        again = await store.load()
        assert seqs(await store.append(sid(), [event()])) == [2]
    assert [session.id for session in loaded.sessions] == [sid(0), sid(1)]
    assert [row.queued_id for row in loaded.queue] == [qid(0)]
    assert loaded.open_runs == (run(1, session=1),)
    assert [(row.kind, row.key) for row in loaded.set_aside] == [
        ("session", sid(2)),
        ("queued", qid(1)),
        ("run", run(0).id),
    ]
    assert "prompt" in loaded.set_aside[1].error
    assert again == evolve(loaded, set_aside=())
    assert execute(folder, "SELECT kind, key, body FROM damaged ORDER BY id") == [
        ("session", sid(2), b"\xff\0"),
        ("queued", qid(1), execute(folder, "SELECT body FROM damaged WHERE key = ?", qid(1))[0][0]),
        ("run", run(0).id, b"{}"),
    ]


async def test_a_nesting_bomb_in_a_row_is_set_aside(folder):
    async with open_store(folder) as store:
        await create(store, 0)
        await create(store, 1)
    bomb = b'{"id":' + b"[" * 100_000
    execute(folder, "UPDATE sessions SET body = ? WHERE id = ?", bomb, sid(1))
    async with open_store(folder) as store:
        loaded = await store.load()
    assert [session.id for session in loaded.sessions] == [sid(0)]
    assert [type(row) for row in loaded.set_aside] == [SetAside]


async def test_another_program_s_lock_is_waited_for(folder, monkeypatch):
    async with open_store(folder) as store:
        await create(store)
        began, commit = trio.Event(), ledger.commit

        def note(*arguments, **more):
            trio.from_thread.run_sync(began.set)
            return commit(*arguments, **more)

        monkeypatch.setattr(ledger, "commit", note)
        other = apsw.Connection(str(folder / DATABASE))
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, sid(), [event("patient")])
            await began.wait()
            other.execute("COMMIT")
        other.close()
        assert texts(await store.read_from(sid(), 0)) == ["patient"]


async def test_a_lock_that_is_held_too_long_is_said_and_ends_nothing(folder):
    async with open_store(folder) as store:
        await create(store)
        store._opened.writer.set_busy_timeout(10)
        other = apsw.Connection(str(folder / DATABASE))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            await store.append(sid(), [event()])
        other.execute("COMMIT")
        other.close()
        assert seqs(await store.append(sid(), [event()])) == [1]


async def test_the_log_comes_back_under_its_bound_after_a_reader_held_it(folder, monkeypatch):
    bound = 512 * 1024
    monkeypatch.setattr(files, "WRITER", {**files.WRITER, "journal_size_limit": (bound, bound)})
    monkeypatch.setattr("agentsdock.store.sqlite.WAL_BYTES", bound)
    async with open_store(folder) as store:
        await create(store)
        wal = folder / f"{DATABASE}-wal"
        other = apsw.Connection(str(folder / DATABASE))
        other.execute("BEGIN")
        other.execute("SELECT * FROM sessions").fetchall()
        for _ in range(20):
            await store.append(sid(), [event("x" * 1000) for _ in range(100)])
        assert store.log_bytes == wal.stat().st_size > 2 * bound
        other.execute("COMMIT")
        other.close()
        await store.append(sid(), [event()])
        with trio.fail_after(10):
            while wal.stat().st_size > bound:
                await trio.lowlevel.checkpoint()


def test_emptying_the_log_does_not_wait_for_a_reader(folder):
    opened = open_files(folder)
    opened.reader.execute("BEGIN")
    opened.reader.execute("SELECT * FROM sessions").fetchall()
    opened.writer.execute("CREATE TABLE more (x)")
    start = time.perf_counter()
    truncate_log(opened.writer)
    assert time.perf_counter() - start < BUSY_MS / 1000 / 2
    assert log_bytes(opened.database) > 0
    opened.reader.execute("COMMIT")
    truncate_log(opened.writer)
    assert log_bytes(opened.database) == 0
    assert opened.writer.pragma("busy_timeout") == BUSY_MS
    opened.close()


async def test_a_dropped_chat_leaves_the_file_in_small_steps_also_after_a_restart(folder):
    async with open_store(folder) as store:
        await create(store, 0)
        await create(store, 1)
        await store.claim(run(), [started()], [PutQueued(queued())])
        await store.finish(run(), [event() for _ in range(1500)] + [ended()])
        await store.append(sid(1), [event("stays")])
        await store.append(sid(), (), [DropSession(sid())])
    assert execute(folder, "SELECT count(*) FROM events") > [(1,)]
    async with open_store(folder) as store:
        with trio.fail_after(10):
            while execute(folder, "SELECT count(*) FROM dropped WHERE NOT purged") != [(0,)]:
                await trio.lowlevel.checkpoint()
        assert texts(await store.read_from(sid(1), 0)) == ["stays"]
    for table in ("events", "runs", "queue", "heads"):
        assert execute(folder, f"SELECT count(*) FROM {table} WHERE chat = 1") == [(0,)]


async def test_a_session_is_never_saved_under_a_number_that_was_used(folder):
    async with open_store(folder) as store:
        await create(store, 0)
        await store.append(sid(), (), [DropSession(sid())])
        await store.append(sid(1), (), [PutSession(chat(1))])
        assert await store.read_from(sid(1), 0) == []
    assert execute(folder, "SELECT chat FROM sessions") == [(2,)]
