"""Files on disk: whole or not there, copied in pieces, in a folder that is ours alone."""

import errno
import os

import pytest
import trio

from agentsdock.files import storage
from agentsdock.files.storage import Storage, TooLarge


async def pieces(*data):
    for piece in data:
        yield piece


@pytest.fixture
def store(tmp_path):
    return Storage.of(tmp_path)


async def test_a_copy_is_independent_of_its_original(store):
    original, _ = await store.write("file_1", "a.bin", pieces(b"one"), 10)
    copy, size = await store.clone(str(original), "file_2")
    original.write_bytes(b"two")
    assert (copy.read_bytes(), size, copy.name) == (b"one", 3, "a.bin")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.stat().st_nlink == 1


@pytest.mark.parametrize("shares", [True, False])
async def test_blocks_are_shared_where_the_file_system_can(store, monkeypatch, shares):
    data = os.urandom(3 * storage.WRITE_BYTES + 7)
    original, _ = await store.write("file_1", "a.bin", pieces(data), len(data))
    asked = []

    def ioctl(descriptor, request, source):
        asked.append(request)
        if not shares:
            raise OSError(errno.EOPNOTSUPP, "no")
        os.write(descriptor, os.pread(source, len(data), 0))

    monkeypatch.setattr(storage.fcntl, "ioctl", ioctl)
    copy, size = await store.clone(str(original), "file_2")
    assert asked == [0x40049409]
    assert (copy.read_bytes(), size) == (data, len(data))


async def test_a_copy_that_is_cut_off_leaves_nothing(store, monkeypatch):
    data = bytes(8 * storage.WRITE_BYTES)
    original, _ = await store.write("file_1", "a.bin", pieces(data), len(data))
    monkeypatch.setattr(storage, "_share", lambda original, file: False)
    scope = trio.CancelScope()
    written = []
    real = storage._write

    def cutting(file, data):
        written.append(len(data))
        trio.from_thread.run_sync(scope.cancel)
        real(file, data)

    monkeypatch.setattr(storage, "_write", cutting)
    with scope:
        await store.clone(str(original), "file_2")
    assert scope.cancelled_caught
    assert sum(written) <= 2 * storage.WRITE_BYTES
    assert store.names() == ["file_1"]


@pytest.mark.parametrize("step", ["_create", "_write", "_finish"])
async def test_a_full_disk_leaves_nothing(store, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, step, full)
    with pytest.raises(OSError, match="No space"):
        await store.write("file_1", "a", pieces(b"x"), 10)
    assert store.names() == []


async def test_more_than_was_allowed_leaves_nothing(store):
    with pytest.raises(TooLarge):
        await store.write("file_1", "a", pieces(b"12345", b"6"), 5)
    assert store.names() == []


def test_the_folder_is_made_for_its_owner_and_repaired(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    folder.chmod(0o755)
    Storage.of(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_new_folder_is_made_durable_in_the_state_folder(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(storage, "sync_folder", synced.append)
    Storage.of(tmp_path)
    assert synced == [tmp_path]


def test_a_folder_that_leads_elsewhere_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "files").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        Storage.of(tmp_path)
