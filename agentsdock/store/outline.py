"""Reads of a chat's outline and traces, each through an index that holds only such rows.

Pure reads on a connection, as in ``queries``.  The index conditions are spelt out as in the
schema: SQLite takes a partial index only for a query that repeats its condition.
"""

from collections.abc import Sequence

import apsw

from agentsdock.model.events import Committed
from agentsdock.store.engine import one_moment
from agentsdock.store.protocol import Span
from agentsdock.store.queries import page, standing

OUTLINE = (
    "type <> 'assistant_text' AND type <> 'idle_warning' AND type <> 'process_started'"
    " AND type <> 'provider_session' AND type <> 'raw_event' AND type <> 'reasoning_summary'"
    " AND type <> 'subagent_state' AND type <> 'tool_finished' AND type <> 'tool_started'"
)
TRACE = (
    "(type = 'code_diff' OR type = 'reasoning_summary'"
    " OR type = 'tool_finished' OR type = 'tool_started')"
)
SUBAGENTS = "type = 'subagent_state'"

_EVENT = "SELECT seq, type, run_id, body FROM events"
SPAN_OUTLINE_ROWS = 64
SPAN_NEWEST_ROWS = 8
SPAN_SPOKEN_ROWS = 32
SPAN_BYTES = 256 * 1024


def outline(
    db: apsw.Connection, session_id: str, after: int, max_bytes: int, max_rows: int
) -> tuple[list[Committed], int]:
    """See the protocol."""
    with one_moment(db):
        chat, last = standing(db, session_id)
        rows = page(
            db,
            f"{_EVENT} INDEXED BY events_outline WHERE {OUTLINE}"
            " AND chat = ? AND seq > ? ORDER BY seq LIMIT ?",
            (chat, after, max_rows),
            max_bytes,
        )
        more = db.execute(
            f"SELECT 1 FROM events INDEXED BY events_outline WHERE {OUTLINE}"  # noqa: S608
            " AND chat = ? AND seq > ? LIMIT 1",
            (chat, rows[-1].seq if rows else last),
        ).fetchone()
    return rows, rows[-1].seq if rows and more else last


def trace_types(
    db: apsw.Connection, session_id: str, after: int, upto: int, max_rows: int
) -> list[tuple[int, str]]:
    """See the protocol.  The index alone is read."""
    with one_moment(db):
        chat, _ = standing(db, session_id)
        found = db.execute(
            f"SELECT seq, type FROM events INDEXED BY events_trace WHERE {TRACE}"  # noqa: S608
            " AND chat = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (chat, after, upto, max_rows),
        )
        return [(seq, kind) for seq, kind in found]


def spans(
    db: apsw.Connection, session_id: str, wanted: Sequence[Span], max_bytes: int
) -> list[list[Committed]]:
    """See the protocol."""
    read: list[list[Committed]] = []
    size = 0
    with one_moment(db):
        chat, _ = standing(db, session_id)
        for span in wanted:
            rows = _span(db, chat, span)
            size += sum(len(row.body) for row in rows)
            if read and size > max_bytes:
                break
            read.append(rows)
    return read


def last_texts(
    db: apsw.Connection, session_id: str, wanted: Sequence[tuple[int, int]]
) -> list[Committed | None]:
    """Of each (first, last) what was said last in it."""
    with one_moment(db):
        chat, _ = standing(db, session_id)
        read = [_texts(db, chat, first, last, 1) for first, last in wanted]
    return [rows[0] if rows else None for rows in read]


def _texts(db: apsw.Connection, chat: int, first: int, last: int, limit: int) -> list[Committed]:
    """Newest first.  Texts have no index of their own: a turn bounds what lies behind the last."""
    return page(
        db,
        f"{_EVENT} INDEXED BY events_by_seq WHERE type = 'assistant_text'"
        " AND chat = ? AND seq BETWEEN ? AND ? ORDER BY seq DESC LIMIT ?",
        (chat, first, last, limit),
        SPAN_BYTES,
    )


def _span(db: apsw.Connection, chat: int, span: Span) -> list[Committed]:
    window = "chat = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    first, last = span.first, span.last
    spoken = _texts(db, chat, first, last, SPAN_SPOKEN_ROWS) if span.spoken else []
    parts = (
        (f"INDEXED BY events_outline WHERE {OUTLINE} AND {window} LIMIT", SPAN_OUTLINE_ROWS),
        (f"INDEXED BY events_by_seq WHERE {window} DESC LIMIT", SPAN_NEWEST_ROWS),
        (f"INDEXED BY events_trace WHERE {TRACE} AND {window} DESC LIMIT", 1),
    )
    found = {row.seq: row for row in spoken}
    for condition, limit in parts:
        rows = page(db, f"{_EVENT} {condition} ?", (chat, first, last, limit), SPAN_BYTES)
        found.update((row.seq, row) for row in rows)
    return [found[seq] for seq in sorted(found)]


def trace(
    db: apsw.Connection,
    session_id: str,
    run_id: str,
    window: tuple[int, int],
    limit: int,
    max_bytes: int,
) -> tuple[list[Committed], bool]:
    """See the protocol."""
    matching = (
        f"INDEXED BY events_trace WHERE {TRACE} AND chat = ? AND seq BETWEEN ? AND ? AND run_id = ?"
    )
    with one_moment(db):
        chat, _ = standing(db, session_id)
        bindings = (chat, *window, run_id)
        rows = page(db, f"{_EVENT} {matching} ORDER BY seq LIMIT ?", (*bindings, limit), max_bytes)
        more = (
            rows
            and db.execute(
                f"SELECT 1 FROM events {matching} AND seq > ? LIMIT 1",  # noqa: S608
                (*bindings, rows[-1].seq),
            ).fetchone()
        )
    return rows, bool(more)


def subagents(
    db: apsw.Connection, session_id: str, after: int, max_bytes: int, max_rows: int
) -> list[Committed]:
    with one_moment(db):
        chat, _ = standing(db, session_id)
        return page(
            db,
            f"{_EVENT} INDEXED BY events_subagents WHERE {SUBAGENTS}"
            " AND chat = ? AND seq > ? ORDER BY seq LIMIT ?",
            (chat, after, max_rows),
            max_bytes,
        )
