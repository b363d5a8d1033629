"""Backups of a state folder: the database and the files of its chats, with a manifest.

A backup is a folder: ``manifest.json`` (sizes and SHA-256 of everything), ``agentsdock.db``,
``files/``.  It gets its name when it is whole.  Left out is what a server makes anew (search of
CLIs, git snapshots), the recordings of runs, and the token.
"""

import contextlib
import datetime
import hashlib
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import cattrs
import msgspec
from attrs import frozen

import agentsdock
from agentsdock.files.storage import FOLDER as FILES
from agentsdock.model.convert import converter
from agentsdock.store import copies
from agentsdock.store.files import DATABASE
from agentsdock.store.snapshots import sync_folder

MANIFEST = "manifest.json"
FORMAT = 1
PIECE = 1024 * 1024


class BackupError(Exception):
    """It cannot be done; nothing of a state folder was changed.  The message says why."""


@frozen
class Content:
    """A file of a backup: its size in bytes and its SHA-256 in hex."""

    size: int
    sha256: str


@frozen
class Manifest:
    """``files`` by path below the backup.  ``absent`` are ids that were on record only."""

    format: int
    made_at: str
    made_by: str
    schema: int
    files: dict[str, Content]
    absent: list[str]


@frozen
class Replaced:
    """Where a restore has put what was there before, if there was anything."""

    kept: pathlib.Path | None


def back_up(state_dir: pathlib.Path, target: pathlib.Path) -> Manifest:
    """Write a new backup.  A server may run: what it has acknowledged before is in it.

    Raises BackupError and StoreError; a backup that is not whole is removed.
    """
    scratch = target.with_name(target.name + ".partial")
    if os.path.lexists(target):
        raise BackupError(f"{target} is there already: name a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir(mode=0o700)
    except OSError as error:
        raise BackupError(f"cannot write {scratch}: {error.strerror}") from error
    try:
        manifest = _fill(state_dir, scratch)
        scratch.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise BackupError(f"{error.filename or scratch}: {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def _fill(state_dir: pathlib.Path, folder: pathlib.Path) -> Manifest:
    database = folder / DATABASE
    schema = copies.copy_database(state_dir, database)
    contents = {DATABASE: _content(database)}
    absent = []
    for file_id, (name, _) in copies.stored_files(database).items():
        try:
            contents[f"{FILES}/{name}"] = _copy(state_dir / FILES / name, folder / FILES / name)
        except FileNotFoundError:
            absent.append(file_id)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    manifest = Manifest(FORMAT, now, agentsdock.__version__, schema, contents, absent)
    written = msgspec.json.format(msgspec.json.encode(manifest))
    with _new_file(folder / MANIFEST) as file:
        os.write(file, written)
        os.fsync(file)
    return manifest


def problems_of(path: pathlib.Path) -> list[str]:
    """What is wrong with a backup, a snapshot or a state folder, in words.

    Raises BackupError and StoreError for what cannot be looked at, StoreTooNew for the work of
    a newer release.
    """
    if path.is_file():
        return copies.problems(path)
    if (path / MANIFEST).exists():
        return _problems_of_backup(path)
    found = copies.problems(path / DATABASE)
    for name, size in copies.stored_files(path / DATABASE).values():
        found += _size_problem(path / FILES / name, size)
    return found


def _problems_of_backup(folder: pathlib.Path) -> list[str]:
    manifest = read_manifest(folder)
    found = []
    for name, content in manifest.files.items():
        try:
            if _content(folder / name) != content:
                found.append(f"{name} is not what it was")
        except OSError as error:
            found.append(f"{name}: {error.strerror}")
    if found:
        return found
    return copies.problems(folder / DATABASE)


def _size_problem(path: pathlib.Path, size: int) -> list[str]:
    try:
        there = path.stat().st_size
    except OSError as error:
        return [f"{FILES}/{path.parent.name}/{path.name}: {error.strerror}"]
    if there != size:
        return [f"{FILES}/{path.parent.name}/{path.name} has {there} bytes, not {size}"]
    return []


def read_manifest(folder: pathlib.Path) -> Manifest:
    """Raises BackupError."""
    try:
        read: Any = msgspec.json.decode((folder / MANIFEST).read_bytes())
        manifest = converter.structure(read, Manifest)
    except OSError as error:
        raise BackupError(f"{folder / MANIFEST}: {error.strerror}") from error
    except (msgspec.MsgspecError, cattrs.BaseValidationError, UnicodeError) as error:
        raise BackupError(f"{folder / MANIFEST} is no manifest: {error}") from error
    if manifest.format != FORMAT:
        raise BackupError(f"{folder} has format {manifest.format}; this release reads {FORMAT}")
    for name in manifest.files:
        if pathlib.PurePath(name).is_absolute() or ".." in pathlib.PurePath(name).parts:
            raise BackupError(f"{folder / MANIFEST} names {name!r}, which lies outside")
    return manifest


def restore(source: pathlib.Path, state_dir: pathlib.Path) -> Replaced:
    """Put a backup (a folder) or a snapshot (a database) in the place of a server's state.

    The database changes in one step, so a crash leaves the old state or the new one.  What was
    replaced is kept beside it.  Raises BackupError, StoreInUse if a server runs, StoreError.
    """
    found = problems_of(source)
    if found:
        raise BackupError(f"{source} is damaged: {'; '.join(found)}")
    database, files = (source, None) if source.is_file() else (source / DATABASE, source / FILES)
    with copies.without_server(state_dir):
        staging = state_dir / "restoring"
        try:
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(mode=0o700)
            return _replace(database, files, state_dir, staging)
        except OSError as error:
            raise BackupError(f"{error.filename or state_dir}: {error.strerror}") from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _replace(
    database: pathlib.Path,
    files: pathlib.Path | None,
    state_dir: pathlib.Path,
    staging: pathlib.Path,
) -> Replaced:
    new = staging / DATABASE
    _copy(database, new)
    copies.adopt(new, state_dir / FILES)
    wanted = copies.stored_files(new)
    if files is not None:
        _bring(files, wanted, state_dir / FILES, staging)
    kept = _unused(state_dir, "replaced")
    kept.mkdir(mode=0o700)
    copies.replace_database(state_dir, new, kept)
    _set_aside(state_dir / FILES, wanted, kept / FILES)
    with contextlib.suppress(OSError):
        kept.rmdir()
    return Replaced(kept if kept.exists() else None)


def _bring(
    source: pathlib.Path,
    wanted: Mapping[str, tuple[str, int]],
    files: pathlib.Path,
    staging: pathlib.Path,
) -> None:
    """Copy the files that are not there yet.  The state that is in use does not name them."""
    files.mkdir(mode=0o700, exist_ok=True)
    for file_id, (name, _) in wanted.items():
        if (source / name).exists() and not _same(source / name, files / name):
            _copy(source / name, staging / name)
            if (files / file_id).exists():
                (files / file_id).rename(_unused(files, file_id))
            (staging / file_id).rename(files / file_id)
    sync_folder(files)


def _set_aside(
    files: pathlib.Path, wanted: Mapping[str, tuple[str, int]], kept: pathlib.Path
) -> None:
    """Keep what only the replaced state names: the next start would remove it."""
    foreign = [name for name in os.listdir(files) if name not in wanted] if files.is_dir() else []
    for name in foreign:
        kept.mkdir(mode=0o700, exist_ok=True)
        (files / name).rename(kept / name)


def _same(one: pathlib.Path, other: pathlib.Path) -> bool:
    try:
        return one.stat().st_size == other.stat().st_size and _content(one) == _content(other)
    except OSError:
        return False


def _unused(folder: pathlib.Path, stem: str) -> pathlib.Path:
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return folder / f"{stem}-{moment}"


def _content(path: pathlib.Path) -> Content:
    size, digest = 0, hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as f:
        while piece := f.read(PIECE):
            size += len(piece)
            digest.update(piece)
    return Content(size, digest.hexdigest())


def _copy(source: pathlib.Path, target: pathlib.Path) -> Content:
    """Copy a file to the disk, 0600; what was copied."""
    size, digest = 0, hashlib.sha256()
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(source, flags), "rb") as original:
        for folder in reversed(target.parents[:2]):
            folder.mkdir(mode=0o700, exist_ok=True)
        with _new_file(target) as copy:
            while piece := original.read(PIECE):
                size += len(piece)
                digest.update(piece)
                _write(copy, piece)
            os.fsync(copy)
    return Content(size, digest.hexdigest())


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


@contextlib.contextmanager
def _new_file(path: pathlib.Path) -> Any:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
