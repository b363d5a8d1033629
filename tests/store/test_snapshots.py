"""Before its schema changes, a database is copied; what the copy holds is what was there."""

import contextlib

import apsw
import pytest
from store_samples import create, event, everything, sid, texts

from agentsdock.store import schema, snapshots
from agentsdock.store.files import DATABASE, LOCK, open_files
from agentsdock.store.protocol import StoreError
from agentsdock.store.sqlite import open_store

NEWER = (*schema.MIGRATIONS, ("CREATE TABLE newer (id INTEGER PRIMARY KEY) STRICT",))
NOW = len(schema.MIGRATIONS)


@pytest.fixture
async def used(folder):
    async with open_store(folder) as store:
        await create(store)
        await store.append(sid(), [event("kept")])
    return folder


def names(folder):
    return sorted(path.name for path in (folder / snapshots.FOLDER).iterdir())


async def test_a_newer_release_leaves_a_copy_that_the_older_one_can_use(used):
    open_files(used, NEWER).close()
    copy = snapshots.snapshot_path(used, NOW)
    assert names(used) == [copy.name]
    assert copy.stat().st_mode & 0o777 == 0o600
    copy.replace(used / DATABASE)
    async with open_store(used) as store:
        assert texts(await everything(store, sid())) == ["kept"]


async def test_a_start_without_a_migration_copies_nothing(used):
    open_files(used).close()
    assert not (used / snapshots.FOLDER).exists()


def test_a_new_database_is_not_copied(folder):
    open_files(folder).close()
    assert {path.name for path in folder.iterdir()} == {DATABASE, LOCK}


async def test_without_room_for_the_copy_nothing_is_migrated(used, monkeypatch):
    def full(source, target):
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr(snapshots, "write_copy", full)
    with pytest.raises(StoreError, match="full"):
        open_files(used, NEWER)
    monkeypatch.undo()
    open_files(used).close()


async def test_the_newest_two_are_kept(used):
    steps = [(f"CREATE TABLE t{n} (id INTEGER PRIMARY KEY) STRICT",) for n in range(11)]
    for count in range(1, len(steps) + 1):
        open_files(used, (*schema.MIGRATIONS, *steps[:count])).close()
    last = NOW + len(steps) - 1
    assert set(names(used)) == {f"schema-{last - 1}.db", f"schema-{last}.db"}


def test_a_copy_that_was_broken_off_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    def broken_off(_):
        raise OSError("no space")

    target = tmp_path / "copy.db"
    with contextlib.closing(apsw.Connection(":memory:")) as source:
        source.execute("CREATE TABLE t (x)")
        snapshots.write_copy(source, target)
        with pytest.raises(FileExistsError):
            snapshots.write_copy(source, target)
        monkeypatch.setattr(snapshots, "sync_file", broken_off)
        with pytest.raises(OSError, match="no space"):
            snapshots.write_copy(source, tmp_path / "other.db")
    assert [path.name for path in tmp_path.iterdir()] == ["copy.db"]
