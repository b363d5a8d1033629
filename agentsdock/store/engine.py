"""SQLite's transactions, and what its errors mean to the house."""

import errno
import os
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from agentsdock.store.protocol import StoreBusy, StoreDamaged, StoreError, StoreFull

BUSY_MS = 10_000
"""How long a write waits for another program that holds the database."""
CHECKPOINT_PAGES = 1000
WAL_BYTES = 16 * 1024 * 1024
"""What a write-ahead log that was once larger is cut back to."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

DAMAGE = (apsw.CorruptError, apsw.NotADBError)

_OF_THE_UNIT = (
    apsw.ConstraintError,
    apsw.TooBigError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.BindingsError,
)


def blames_engine(error: Exception) -> bool:
    """Whether an error says something about the database and not about the one unit."""
    return isinstance(error, apsw.Error) and not isinstance(error, _OF_THE_UNIT)


def translate(error: Exception, connection: apsw.Connection) -> Exception:
    """The house's error for the engine's; anything else (a bug of ours) as it is."""
    if not isinstance(error, apsw.Error):
        return error
    kind = StoreError
    if isinstance(error, apsw.FullError):
        kind = StoreFull
    elif isinstance(error, apsw.IOError | apsw.CantOpenError):
        # Quotas and file size limits come as input/output errors; only errno knows.
        kind = StoreFull if connection.system_errno in _NO_SPACE else StoreError
    elif isinstance(error, apsw.BusyError | apsw.LockedError):
        kind = StoreBusy
    elif isinstance(error, DAMAGE):
        kind = StoreDamaged
    translated = kind(str(error))
    translated.__cause__ = error
    return translated


@contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # Some failures have rolled back by themselves.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def one_moment(db: apsw.Connection) -> Iterator[None]:
    """Everything read inside is as it stood at one commit."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def log_bytes(database: pathlib.Path) -> int:
    """The size of the write-ahead log."""
    try:
        return os.stat(f"{database}-wal").st_size
    except FileNotFoundError:
        return 0


def truncate_log(db: apsw.Connection) -> None:
    """Empty the write-ahead log, unless somebody still reads from it."""
    db.set_busy_timeout(0)
    try:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        pass
    finally:
        db.set_busy_timeout(BUSY_MS)
