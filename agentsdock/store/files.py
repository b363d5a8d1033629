"""The store's folder: who may open it, how its files come into being, what is set aside.

The folder is the server's own.  It is 0700 and its files are 0600 from their first
byte, whatever the umask.
"""

import datetime
import fcntl
import os
import pathlib
import stat
from collections.abc import Mapping, Sequence

import apsw
from attrs import frozen

from agentsdock.store import schema, snapshots
from agentsdock.store.engine import BUSY_MS, CHECKPOINT_PAGES, DAMAGE, WAL_BYTES, translate
from agentsdock.store.protocol import StoreDamaged, StoreError, StoreInUse, StoreTooNew

DATABASE = "agentsdock.db"
LOCK = "agentsdock.lock"
COMPANIONS = ("", "-wal", "-shm", "-journal")

_MAGIC = b"SQLite format 3\0"
_VERSION_AT = 60

_EVERY_CONNECTION = {
    "synchronous": ("FULL", 2),
    "cache_size": (-2000, -2000),
    "trusted_schema": (False, 0),
    # Only macOS knows it: there a plain fsync does not reach the disk.
    "fullfsync": (True, 1),
}
WRITER = {
    "page_size": (4096, 4096),
    "journal_mode": ("WAL", "wal"),
    "wal_autocheckpoint": (CHECKPOINT_PAGES, CHECKPOINT_PAGES),
    "journal_size_limit": (WAL_BYTES, WAL_BYTES),
}
READER = {"query_only": (True, 1)}


@frozen
class Opened:
    """Connections to a database of the current version, and the lock that guards it."""

    database: pathlib.Path
    writer: apsw.Connection
    reader: apsw.Connection
    lock: int
    set_aside: pathlib.Path | None

    def another_reader(self) -> apsw.Connection:
        """Raises StoreError."""
        try:
            return connect(self.database, READER)
        except apsw.Error as error:
            raise StoreError(f"cannot open {self.database} once more: {error}") from error

    def close(self) -> None:
        """The last connection takes the write-ahead log into the database and removes it."""
        self.reader.close()
        self.writer.close()
        os.close(self.lock)


def open_files(
    folder: pathlib.Path, migrations: Sequence[schema.Migration] = schema.MIGRATIONS
) -> Opened:
    """Raises StoreError; a database that is damaged is set aside and a new one begun."""
    try:
        prepare_folder(folder)
        lock = take_lock(folder / LOCK)
    except OSError as error:
        raise StoreError(f"cannot use the folder {folder}: {error.strerror}") from error
    try:
        database = folder / DATABASE
        try:
            return _open(database, lock, migrations, set_aside=None)
        except (StoreDamaged, *DAMAGE):
            return _open(database, lock, migrations, set_aside=_set_aside(database))
    except BaseException as error:
        os.close(lock)
        if isinstance(error, OSError | apsw.Error):
            raise StoreError(f"cannot open {folder / DATABASE}: {error}") from error
        raise


def prepare_folder(folder: pathlib.Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        pass
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:
            raise StoreError(f"the folder {folder} is not ours alone")
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def private_file(path: pathlib.Path, flags: int) -> int:
    """Open our own regular file, made 0600 if new; follows no link."""
    descriptor = os.open(
        path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o600
    )
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(descriptor)
        raise StoreError(f"{path} is not a file of ours")
    os.fchmod(descriptor, 0o600)
    return descriptor


def take_lock(path: pathlib.Path) -> int:
    """The kernel lets go of it when its holder dies; no program that we start inherits it."""
    descriptor = private_file(path, os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreInUse(
            f"another server (process {holder}) uses the folder {path.parent}"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


def _open(
    database: pathlib.Path,
    lock: int,
    migrations: Sequence[schema.Migration],
    set_aside: pathlib.Path | None,
) -> Opened:
    refuse_newer(database, _stored_version(database), len(migrations))
    writer = connect(database, WRITER)
    try:
        try:
            found = schema.version(writer)
            refuse_newer(database, found, len(migrations))
            if 0 < found < len(migrations):
                snapshots.keep(writer, database.parent, found)
            if schema.migrate(writer, migrations):
                # The version has to be where _stored_version looks for it.
                writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            _look_over(writer)
            reader = connect(database, READER)
        except apsw.Error as error:
            if isinstance(error, DAMAGE):
                raise
            raise translate(error, writer) from error
    except BaseException:
        writer.close()
        raise
    return Opened(database, writer, reader, lock, set_aside)


def _stored_version(database: pathlib.Path) -> int:
    """The version in the file, read without the engine: opening alone may change the file."""
    try:
        os.close(private_file(database, 0))
        return written_version(database)
    except FileNotFoundError:
        wal = database.with_name(database.name + "-wal")
        if wal.exists():
            raise StoreDamaged(f"{wal} is there without its database") from None
        _create(database)
        return 0


def written_version(database: pathlib.Path) -> int:
    """Raises OSError, and StoreDamaged for what is no database."""
    descriptor = os.open(database, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        head = os.read(descriptor, 100)
    finally:
        os.close(descriptor)
    if not head:
        return 0
    if not head.startswith(_MAGIC):
        raise StoreDamaged(f"{database} is no database")
    return int.from_bytes(head[_VERSION_AT : _VERSION_AT + 4], "big")


def _create(database: pathlib.Path) -> None:
    os.close(private_file(database, os.O_CREAT | os.O_EXCL))
    folder = os.open(database.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def refuse_newer(database: pathlib.Path, found: int, known: int) -> None:
    if found > known:
        raise StoreTooNew(
            f"{database} has version {found} and this release knows {known};"
            " install the release that wrote it, or a newer one"
        )


def connect(
    database: pathlib.Path, pragmas: Mapping[str, tuple[object, object]]
) -> apsw.Connection:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(BUSY_MS)
        for name, (value, expected) in {**pragmas, **_EVERY_CONNECTION}.items():
            connection.pragma(name, value)
            if connection.pragma(name) != expected:
                raise StoreError(f"SQLite did not accept {name} = {value}")
    except BaseException:
        connection.close()
        raise
    return connection


def _look_over(connection: apsw.Connection) -> None:
    """Read what a server needs to start, so that damage shows before anything relies on it."""
    for table in ("sessions", "queue", "runs WHERE open"):
        connection.execute(f"SELECT sum(length(body)) FROM {table}").fetchall()  # noqa: S608
    connection.execute("SELECT sum(seq) FROM heads").fetchall()
    connection.execute("SELECT length(body) FROM events ORDER BY id DESC LIMIT 1").fetchall()


def _set_aside(database: pathlib.Path) -> pathlib.Path:
    """Rename the database and its companions; nothing is ever overwritten."""
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    number = 0
    while True:
        name = f"{database.name}.damaged-{moment}" + (f"-{number}" if number else "")
        aside = database.with_name(name)
        targets = [database.with_name(name + suffix) for suffix in COMPANIONS]
        if not any(os.path.lexists(target) for target in targets):
            break
        number += 1
    for suffix, target in zip(COMPANIONS, targets, strict=True):
        source = database.with_name(database.name + suffix)
        if os.path.lexists(source):
            source.rename(target)
    return aside
