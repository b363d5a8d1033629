"""Full-text search behind a watermark.

Events are indexed in small steps while the writer has nothing else to do: inside an append it
would cost ten times the append.  What is not indexed yet is put into indexes in memory when
somebody searches, piece by piece, so that no hit is late and all parts know the same words.

An indexed row is numbered by its chat and sequence number; its text is not stored again.
"""

import heapq
import re
import unicodedata
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import apsw
import msgspec
from attrs import define

from agentsdock.model.events import Committed
from agentsdock.model.searchable import SEARCHABLE_TYPES, read_searchable
from agentsdock.store.engine import one_moment
from agentsdock.store.protocol import Found, Hit
from agentsdock.store.queries import standing

CHAT_SHIFT = 32
STEP_ROWS = 50
STEP_CHARS = 64 * 1024
"""Of one transaction: a few milliseconds."""
ROW_BYTES = 200
"""What a row counts for beside its body."""
FRESH_BYTES = 96 * 1024 * 1024
"""What one search looks through by itself; there is more only while an index is built anew."""
PIECE_BYTES = 4 * 1024 * 1024
"""What of that is in memory at once."""
CHECKED_CHARS = 100

TABLE = """
    CREATE VIRTUAL TABLE search USING fts5(
        text, content='', contentless_delete=1, tokenize="unicode61 remove_diacritics 2"
    )
    """
"""As the schema has it."""

_INSERT = "INSERT INTO search (rowid, text) VALUES (?, ?)"
_BEHIND = (
    "SELECT chat, ifnull(search_marks.seq, 0), heads.seq FROM heads"
    " LEFT JOIN search_marks USING (chat) JOIN sessions USING (chat)"
    " WHERE heads.seq > ifnull(search_marks.seq, 0)"
)
_WORDS = re.compile(r'"([^"]*)"|([^\s"]+)')
_EVENT = "SELECT seq, type, body FROM events INDEXED BY events_by_seq WHERE chat = ?"
_decode = msgspec.json.Decoder().decode


class _Stamp(msgspec.Struct):
    ts: str


_decode_stamp = msgspec.json.Decoder(_Stamp).decode


def expression(query: str) -> str:
    """The query in the engine's language: all words, by their beginnings; quoted text as it is.

    Empty where the query has no letter or digit.
    """
    parts = []
    known = query.encode("utf-8", "replace").decode().replace("\0", " ")
    for phrase, word in _WORDS.findall(known):
        if _has_token(phrase):
            parts.append(f'"{phrase}"')
        elif _has_token(word):
            parts.append(f'"{word}" *')
    return " AND ".join(parts)


def _has_token(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def index_some(db: apsw.Connection) -> int:
    """Inside a transaction: index the next few rows; the bytes they count for, 0 at the end."""
    behind = _rows(db, f"{_BEHIND} LIMIT 1")
    if not behind:
        return 0
    chat, mark, last = behind[0]
    chars = size = 0
    rows = db.execute(f"{_EVENT} AND seq > ? ORDER BY seq LIMIT ?", (chat, mark, STEP_ROWS))
    with closing(rows):
        for seq, kind, body in rows:
            mark = seq
            text = _text(kind, body)
            if text:
                db.execute(_INSERT, (chat << CHAT_SHIFT | seq, text))
            size += len(body) + ROW_BYTES
            chars += len(text)
            if chars > STEP_CHARS:
                break
    if not size:  # rows are missing, and the other chats must not wait for them
        mark, size = last, 1
    db.execute(
        "INSERT INTO search_marks (chat, seq) VALUES (?, ?)"
        " ON CONFLICT (chat) DO UPDATE SET seq = excluded.seq",
        (chat, mark),
    )
    return size


def answers(db: apsw.Connection) -> bool:
    """Whether the first and the last row of the index are found by their own words.

    An index can have lost its words and still answer each query, with nothing.
    """
    for (row,) in _rows(
        db, "SELECT min(id) FROM search_docsize UNION SELECT max(id) FROM search_docsize"
    ):
        if row is None:
            continue
        wanted = ""
        for _, kind, body in _rows(db, f"{_EVENT} AND seq = ?", _place(row)):
            wanted = expression(_text(kind, body)[:CHECKED_CHARS].replace('"', " "))
        if wanted and not _rows(
            db, "SELECT 1 FROM search WHERE search MATCH ? AND rowid = ?", (wanted, row)
        ):
            return False
    return True


def begin_anew(db: apsw.Connection) -> None:
    """Inside a transaction: throw a damaged index away; its rows are indexed again."""
    db.execute("DROP TABLE search")
    db.execute("DELETE FROM search_marks")
    db.execute(TABLE)


def purge(db: apsw.Connection, chat: int, rows: int) -> bool:
    """Remove some rows of a deleted chat from the index; whether there were any."""
    low = chat << CHAT_SHIFT
    found = _rows(
        db,
        "SELECT id FROM search_docsize WHERE id BETWEEN ? AND ? LIMIT ?",
        (low, low + (1 << CHAT_SHIFT) - 1, rows),
    )
    db.executemany("DELETE FROM search WHERE rowid = ?", found)
    db.execute("DELETE FROM search_marks WHERE chat = ?", (chat,))
    return bool(found)


def search_chat(db: apsw.Connection, session_id: str, query: str, limit: int) -> Found:
    """The newest hits of one chat.  Raises SessionGone."""
    wanted = expression(query)
    with one_moment(db):
        chat, _ = standing(db, session_id)
        if not wanted:
            return Found([], True)
        low, high = chat << CHAT_SHIFT, (chat + 1) << CHAT_SHIFT
        halves = _Halves(db, f"{_BEHIND} AND chat = {chat:d}")
        rows: list[int] = []
        with closing(halves.newest_first()) as indexes:
            for index in indexes:
                found = _rows(
                    index,
                    "SELECT rowid FROM search WHERE search MATCH ? AND rowid >= ? AND rowid < ?"
                    " ORDER BY rowid DESC LIMIT ?",
                    (wanted, low, high, limit - len(rows)),
                )
                rows += [row for (row,) in found]
                if len(rows) == limit:
                    break
        hits = [_hit(db, session_id, row, 1) for row in rows]
    return Found(hits, halves.complete)


def search_all(db: apsw.Connection, query: str, among: frozenset[str], limit: int) -> Found:
    """The newest hit of each of these chats, with the number of its hits; the latest chats."""
    wanted = expression(query)
    if not wanted:
        return Found([], True)
    with one_moment(db):
        halves = _Halves(db, _BEHIND)
        newest: dict[int, int] = {}
        counts: Counter[int] = Counter()
        with closing(halves.newest_first()) as indexes:
            for index in indexes:
                matching = "SELECT rowid FROM search WHERE search MATCH ?"
                for (row,) in index.execute(matching, (wanted,)):
                    chat = row >> CHAT_SHIFT
                    counts[chat] += 1
                    newest[chat] = max(newest.get(chat, 0), row)
        latest = heapq.nlargest(limit, _dated(db, newest, among))
        hits = [
            _hit(db, session_id, row, counts[row >> CHAT_SHIFT]) for *_, row, session_id in latest
        ]
    return Found(hits, halves.complete)


def _dated(
    db: apsw.Connection, newest: dict[int, int], among: frozenset[str]
) -> Iterator[tuple[str, int, int, str]]:
    """(time, sequence number, row, chat) of hits in chats that are there."""
    for chat, row in newest.items():
        for (session_id,) in _rows(db, "SELECT id FROM sessions WHERE chat = ?", (chat,)):
            if session_id in among:
                [(seq, _, body)] = _rows(db, f"{_EVENT} AND seq = ?", _place(row))
                yield _decode_stamp(body).ts, seq, row, session_id


@define
class _Halves:
    """What is not indexed yet, and what is."""

    db: apsw.Connection
    behind: str
    """The chats that are not indexed to their end."""
    complete: bool = True
    """Unless more is not indexed than one search looks through."""

    def newest_first(self) -> Generator[apsw.Connection, None, None]:
        """Indexes that hold, one after the other, all rows of a chat, the stored one last."""
        texts: list[tuple[int, str]] = []
        size, left = 0, FRESH_BYTES
        for chat, mark, _ in _rows(self.db, f"{self.behind} ORDER BY chat DESC"):
            rows = self.db.execute(f"{_EVENT} AND seq > ? ORDER BY seq DESC", (chat, mark))
            with closing(rows):
                for seq, kind, body in rows:
                    if left <= 0:
                        self.complete = False
                        break
                    texts.append((chat << CHAT_SHIFT | seq, _text(kind, body)))
                    size += len(body) + ROW_BYTES
                    left -= len(body) + ROW_BYTES
                    if size > PIECE_BYTES:
                        yield _index_of(texts)
                        texts, size = [], 0
        if texts:
            yield _index_of(texts)
        yield self.db


def _index_of(texts: list[tuple[int, str]]) -> apsw.Connection:
    """Rows must come newest first."""
    index = apsw.Connection(":memory:")
    index.execute(TABLE)
    with index:
        # The engine begins a new segment where a row number is lower than the last one.
        index.executemany(_INSERT, (row for row in reversed(texts) if row[1]))
    return index


def _text(kind: str, body: bytes) -> str:
    """Nothing where nothing can be found, or read."""
    if kind not in SEARCHABLE_TYPES:
        return ""
    try:
        return read_searchable(_decode(body))[1]
    except (msgspec.DecodeError, RecursionError):
        return ""


def _place(row: int) -> tuple[int, int]:
    """Chat and sequence number."""
    return row >> CHAT_SHIFT, row & ((1 << CHAT_SHIFT) - 1)


def _hit(db: apsw.Connection, session_id: str, row: int, count: int) -> Hit:
    [found] = _rows(
        db,
        "SELECT seq, type, run_id, body FROM events INDEXED BY events_by_seq"
        " WHERE chat = ? AND seq = ?",
        _place(row),
    )
    return Hit(session_id, Committed(*found), count)


def _rows(db: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    return db.execute(sql, bindings).fetchall()
