"""Reads of a chat's file records, with the events that brought them.  Pure, as ``queries``."""

from typing import Any

import apsw
import msgspec

from agentsdock.model.files import FileRecord, ListedFile
from agentsdock.store.engine import one_moment
from agentsdock.store.queries import standing
from agentsdock.store.records import read_file_record

_JOINED = (
    "SELECT files.body, events.seq, events.type, events.body FROM files"
    " JOIN events ON events.chat = files.chat AND events.seq = files.event_seq"
)
_NEWEST_FIRST = "ORDER BY files.number DESC"


class _Event(msgspec.Struct):
    id: str


_event_id = msgspec.json.Decoder(_Event).decode


def files(
    db: apsw.Connection, session_id: str, limit: int, offset: int, content_prefix: str
) -> tuple[list[ListedFile], int]:
    """A page, newest first, and how many there are."""
    with one_moment(db):
        chat, _ = standing(db, session_id)
        matching = "WHERE files.chat = ? AND substr(files.content_type, 1, ?) = ?"
        bound = (chat, len(content_prefix), content_prefix)
        counted: Any = db.execute(f"SELECT count(*) FROM files {matching}", bound).fetchone()  # noqa: S608
        rows = db.execute(
            f"{_JOINED} {matching} {_NEWEST_FIRST} LIMIT ? OFFSET ?", (*bound, limit, offset)
        )
        return [_listed(row) for row in rows], counted[0]


def file(db: apsw.Connection, session_id: str, file_id: str) -> ListedFile | None:
    with one_moment(db):
        chat, _ = standing(db, session_id)
        rows = db.execute(f"{_JOINED} WHERE files.chat = ? AND files.id = ?", (chat, file_id))
        return next((_listed(row) for row in rows), None)


def linked_file(db: apsw.Connection, session_id: str, target: str) -> ListedFile | None:
    """The newest file that is known by this id, name, title or path."""
    with one_moment(db):
        chat, _ = standing(db, session_id)
        for row in db.execute(f"{_JOINED} WHERE files.chat = ? {_NEWEST_FIRST}", (chat,)):
            found = _listed(row)
            record = found.record
            names = (record.id, record.filename, record.title, record.source_path, record.path)
            if target in names:
                return found
    return None


def owner_of(db: apsw.Connection, file_id: str) -> str | None:
    """The chat that a file belongs to."""
    row: Any = db.execute(
        "SELECT sessions.id FROM files JOIN sessions USING (chat) WHERE files.id = ?", (file_id,)
    ).fetchone()
    return row[0] if row else None


def known_files(db: apsw.Connection) -> frozenset[str]:
    """The ids of all files of chats that there are."""
    rows: Any = db.execute("SELECT files.id FROM files JOIN sessions USING (chat)")
    return frozenset(file_id for (file_id,) in rows)


def _listed(row: Any) -> ListedFile:
    body, seq, kind, event = row
    record: FileRecord = read_file_record(body)
    return ListedFile(record, seq, kind, _event_id(event).id)
