"""Full-text search behind a watermark.

Events are indexed in small steps while the writer has nothing else to do: inside an append it
would cost ten times the append.  What is not indexed yet is put into an index in memory when
somebody searches, so that no hit is late and both halves know the same words.

An indexed row is numbered by its chat and sequence number; its text is not stored again.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from agentsdock.model.events import Committed
from agentsdock.model.searchable import SEARCHABLE_TYPES, read_searchable
from agentsdock.store.engine import one_moment
from agentsdock.store.protocol import Found, Hit
from agentsdock.store.queries import standing

CHAT_SHIFT = 32
STEP_ROWS = 50
STEP_CHARS = 64 * 1024
"""Of one transaction: a few milliseconds."""
FRESH_ROWS = 50_000
"""Rows that one search looks through by itself; more only while an index is built anew."""

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
_decode = msgspec.json.Decoder().decode


def expression(query: str) -> str:
    """The query in the engine's language: all words, by their beginnings; quoted text as it is.

    Empty where the query has no letter or digit.
    """
    parts = []
    for phrase, word in _WORDS.findall(query.replace("\0", " ")):
        if _has_token(phrase):
            parts.append(f'"{phrase}"')
        elif _has_token(word):
            parts.append(f'"{word}" *')
    return " AND ".join(parts)


def _has_token(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def index_some(db: apsw.Connection) -> bool:
    """Inside a transaction: index the next few rows; whether there may be more."""
    behind = _rows(db, f"{_BEHIND} LIMIT 1")
    if not behind:
        return False
    chat, mark, _ = behind[0]
    chars = 0
    for seq, text in _texts(db, chat, mark, STEP_ROWS):
        mark = seq
        if text:
            db.execute(_INSERT, (chat << CHAT_SHIFT | seq, text))
        chars += len(text)
        if chars > STEP_CHARS:
            break
    db.execute(
        "INSERT INTO search_marks (chat, seq) VALUES (?, ?)"
        " ON CONFLICT (chat) DO UPDATE SET seq = excluded.seq",
        (chat, mark),
    )
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
        fresh, complete = _fresh(db, f"{_BEHIND} AND chat = {chat:d}")
        low, high = chat << CHAT_SHIFT, (chat + 1) << CHAT_SHIFT
        rows: list[int] = []
        for connection in (fresh, db):
            if len(rows) < limit:
                found = _rows(
                    connection,
                    "SELECT rowid FROM search WHERE search MATCH ? AND rowid >= ? AND rowid < ?"
                    " ORDER BY rowid DESC LIMIT ?",
                    (wanted, low, high, limit - len(rows)),
                )
                rows += [row for (row,) in found]
        hits = [_hit(db, session_id, row, 1) for row in rows]
    return Found(hits, complete)


def search_all(db: apsw.Connection, query: str, without: frozenset[str]) -> Found:
    """The newest hit of each chat but those, with the number of its hits."""
    wanted = expression(query)
    if not wanted:
        return Found([], True)
    with one_moment(db):
        fresh, complete = _fresh(db, _BEHIND)
        newest: dict[int, int] = {}
        counts: Counter[int] = Counter()
        for connection in (db, fresh):
            for (row,) in _rows(
                connection, "SELECT rowid FROM search WHERE search MATCH ?", (wanted,)
            ):
                chat = row >> CHAT_SHIFT
                counts[chat] += 1
                newest[chat] = max(newest.get(chat, 0), row)
        hits = []
        for chat, row in newest.items():
            for (session_id,) in _rows(db, "SELECT id FROM sessions WHERE chat = ?", (chat,)):
                if session_id not in without:
                    hits.append(_hit(db, session_id, row, counts[chat]))
    return Found(hits, complete)


def _fresh(db: apsw.Connection, behind: str) -> tuple[apsw.Connection, bool]:
    """An index of what the stored one lacks, newest first, and whether it has all of that."""
    fresh = apsw.Connection(":memory:")
    fresh.execute(TABLE)
    left = FRESH_ROWS
    for chat, mark, last in _rows(db, f"{behind} ORDER BY chat DESC"):
        after = max(mark, last - left)
        left -= last - after
        texts = _texts(db, chat, after, last - after)
        with fresh:
            fresh.executemany(
                _INSERT, ((chat << CHAT_SHIFT | seq, text) for seq, text in texts if text)
            )
        if after > mark:
            return fresh, False
    return fresh, True


def _texts(db: apsw.Connection, chat: int, after: int, limit: int) -> Iterator[tuple[int, str]]:
    """(seq, text) of the next rows; no text where nothing can be found."""
    rows: Any = db.execute(
        "SELECT seq, type, body FROM events INDEXED BY events_by_seq"
        " WHERE chat = ? AND seq > ? ORDER BY seq LIMIT ?",
        (chat, after, limit),
    )
    for seq, kind, body in rows:
        yield seq, read_searchable(_decode(body))[1] if kind in SEARCHABLE_TYPES else ""


def _hit(db: apsw.Connection, session_id: str, row: int, count: int) -> Hit:
    chat, seq = row >> CHAT_SHIFT, row & ((1 << CHAT_SHIFT) - 1)
    [found] = _rows(
        db,
        "SELECT seq, type, run_id, body FROM events INDEXED BY events_by_seq"
        " WHERE chat = ? AND seq = ?",
        (chat, seq),
    )
    return Hit(session_id, Committed(*found), count)


def _rows(db: apsw.Connection, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    return db.execute(sql, bindings).fetchall()
