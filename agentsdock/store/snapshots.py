"""Whole copies of a database, one self-contained file each, taken while others write.

``snapshots/schema-N.db`` in the state folder is the database as it was before a newer release
took it beyond version N: what a rolled-back release can read.
"""

import os
import pathlib

import apsw

FOLDER = "snapshots"
KEPT = 2


def keep(source: apsw.Connection, state_dir: pathlib.Path, version: int) -> pathlib.Path:
    """Snapshot a database of this version, before its schema changes.  The newest few stay."""
    folder = state_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path = snapshot_path(state_dir, version)
    scratch = path.with_suffix(".partial")
    scratch.unlink(missing_ok=True)
    write_copy(source, scratch)
    scratch.replace(path)
    sync_folder(folder)
    by_version = sorted(folder.glob("schema-*.db"), key=lambda p: int(p.stem.split("-")[1]))
    for old in by_version[:-KEPT]:
        old.unlink()
    return path


def snapshot_path(state_dir: pathlib.Path, version: int) -> pathlib.Path:
    return state_dir / FOLDER / f"schema-{version}.db"


def write_copy(source: apsw.Connection, target: pathlib.Path) -> None:
    """Copy everything that is committed now into a new file, 0600 and on the disk.

    The one step reads a single state of the source, and writers of a WAL database do not wait
    for it.  Raises FileExistsError, OSError and apsw.Error; what is half written is removed.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    try:
        copy = apsw.Connection(str(target))
        try:
            with copy.backup("main", source, "main") as backup:
                backup.step(-1)
            # A copy in WAL mode would need two more files as soon as it is looked at.
            copy.pragma("journal_mode", "DELETE")
        finally:
            copy.close()
        sync_file(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def sync_folder(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
