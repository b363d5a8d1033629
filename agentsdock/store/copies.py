"""What backup, restore and verify do with databases; the files beside them are ``backups``'.

A database of a newer release is refused before the engine touches it.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import apsw
from attrs import evolve

from agentsdock.store import schema
from agentsdock.store.files import (
    COMPANIONS,
    DATABASE,
    LOCK,
    connect,
    prepare_folder,
    refuse_newer,
    take_lock,
    written_version,
)
from agentsdock.store.protocol import StoreError
from agentsdock.store.records import dump, read_file_record
from agentsdock.store.snapshots import sync_folder, write_copy

MOST_PROBLEMS = 20
_LOOKED_AT = {"query_only": (True, 1)}


def copy_database(state_dir: pathlib.Path, target: pathlib.Path) -> int:
    """A whole copy of what is committed, beside a running server or without one; its version.

    Raises StoreError.
    """
    with _looking_at(state_dir / DATABASE) as database:
        write_copy(database, target)
        return schema.version(database)


def problems(path: pathlib.Path) -> list[str]:
    """What the engine's own check finds wrong, the search index included.  Raises StoreError."""
    with _looking_at(path) as database:
        found = database.execute(f"PRAGMA integrity_check({MOST_PROBLEMS})").fetchall()
        return [str(row[0]) for row in found if row != ("ok",)]


def stored_files(path: pathlib.Path) -> dict[str, tuple[str, int]]:
    """Of each file on record, by id: its path below the folder of files, and its size.

    Raises StoreError.
    """
    with _looking_at(path) as database:
        found = {}
        bodies: Any = database.execute("SELECT body FROM files")
        for (body,) in bodies:
            record = read_file_record(body)
            found[record.id] = f"{record.id}/{pathlib.PurePath(record.path).name}", record.size
        return found


def adopt(path: pathlib.Path, files_folder: pathlib.Path) -> None:
    """Let a copy of a database name the files where they will lie.  Raises StoreError."""
    with _open(path, {}) as database, database:
        rows: Any = database.execute("SELECT number, body FROM files").fetchall()
        for number, body in rows:
            record = read_file_record(body)
            there = files_folder / record.id / pathlib.PurePath(record.path).name
            moved = dump(evolve(record, path=str(there)))
            database.execute("UPDATE files SET body = ? WHERE number = ?", (moved, number))


@contextlib.contextmanager
def without_server(state_dir: pathlib.Path) -> Iterator[None]:
    """Keep servers away from a state folder, which is made if absent.

    Raises StoreInUse if one runs, and StoreError.
    """
    try:
        prepare_folder(state_dir)
        lock = take_lock(state_dir / LOCK)
    except OSError as error:
        raise StoreError(f"cannot use the folder {state_dir}: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(lock)


def replace_database(state_dir: pathlib.Path, new: pathlib.Path, kept: pathlib.Path) -> None:
    """Put ``new`` in the place of the database, in one step; the old one goes to ``kept``.

    Call within :func:`without_server`.  Whenever this ends, the old or the new database is
    there, whole and without a foreign write-ahead log.  Raises OSError.
    """
    database = state_dir / DATABASE
    if database.exists():
        # What is no database is kept as it is: the engine would drop its log.
        with contextlib.suppress(OSError, apsw.Error, StoreError):
            written_version(database)
            with contextlib.closing(apsw.Connection(str(database))) as connection:
                connection.pragma("journal_mode", "DELETE")
        os.link(database, kept / DATABASE)
    for suffix in COMPANIONS[1:]:
        companion = state_dir / (DATABASE + suffix)
        if os.path.lexists(companion):
            companion.replace(kept / companion.name)
    new.replace(database)
    sync_folder(state_dir)


@contextlib.contextmanager
def _looking_at(path: pathlib.Path) -> Iterator[apsw.Connection]:
    with _open(path, _LOOKED_AT) as database:
        yield database


@contextlib.contextmanager
def _open(
    path: pathlib.Path, pragmas: Mapping[str, tuple[object, object]]
) -> Iterator[apsw.Connection]:
    try:
        refuse_newer(path, written_version(path), len(schema.MIGRATIONS))
        with contextlib.closing(connect(path, pragmas)) as database:
            yield database
    except FileNotFoundError as error:
        raise StoreError(f"there is no database {path}") from error
    except (OSError, apsw.Error) as error:
        raise StoreError(f"{path}: {error}") from error
