"""Reads of a chat's outline and traces, each through an index that holds only such rows.

Pure reads on a connection, as in ``queries``.  The index conditions are spelt out as in the
schema: SQLite takes a partial index only for a query that repeats its condition.
"""

from collections.abc import Sequence

import apsw

from agentsdock.model.events import Committed
from agentsdock.store.engine import one_moment
from agentsdock.store.queries import page, standing

OUTLINE = (
    "type NOT IN ('assistant_text', 'idle_warning', 'process_started', 'provider_session',"
    " 'raw_event', 'reasoning_summary', 'subagent_state', 'tool_finished', 'tool_started')"
)
TRACE = "type IN ('code_diff', 'reasoning_summary', 'tool_finished', 'tool_started')"
SUBAGENTS = "type = 'subagent_state'"

_EVENT = "SELECT seq, type, run_id, body FROM events"
SPAN_OUTLINE_ROWS = 64
SPAN_NEWEST_ROWS = 8
SPAN_BYTES = 256 * 1024


def outline(
    db: apsw.Connection, session_id: str, after: int, max_bytes: int, max_rows: int
) -> tuple[list[Committed], list[tuple[int, str]], int]:
    """The next rows of the outline, (seq, type) of the trace rows up to there, and how far
    both reach."""
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
        reach = rows[-1].seq if rows and more else last
        found = db.execute(
            f"SELECT seq, type FROM events INDEXED BY events_trace WHERE {TRACE}"  # noqa: S608
            " AND chat = ? AND seq > ? AND seq <= ? ORDER BY seq",
            (chat, after, reach),
        )
        trace: list[tuple[int, str]] = [(seq, kind) for seq, kind in found]
    return rows, trace, reach


def spans(
    db: apsw.Connection, session_id: str, wanted: Sequence[tuple[int, int]]
) -> list[list[Committed]]:
    """Of each (first, last): its outline rows, its newest rows and its newest trace row."""
    with one_moment(db):
        chat, _ = standing(db, session_id)
        return [_span(db, chat, first, last) for first, last in wanted]


def _span(db: apsw.Connection, chat: int, first: int, last: int) -> list[Committed]:
    window = "chat = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    parts = (
        (f"INDEXED BY events_outline WHERE {OUTLINE} AND {window} LIMIT", SPAN_OUTLINE_ROWS),
        (f"INDEXED BY events_by_seq WHERE {window} DESC LIMIT", SPAN_NEWEST_ROWS),
        (f"INDEXED BY events_trace WHERE {TRACE} AND {window} DESC LIMIT", 1),
    )
    found = {
        row.seq: row
        for condition, limit in parts
        for row in page(db, f"{_EVENT} {condition} ?", (chat, first, last, limit), SPAN_BYTES)
    }
    return [found[seq] for seq in sorted(found)]


def trace(
    db: apsw.Connection,
    session_id: str,
    run_id: str,
    window: tuple[int, int],
    limit: int,
    max_bytes: int,
) -> list[Committed]:
    """The trace rows of a run with seq from the first to the last of ``window``."""
    with one_moment(db):
        chat, _ = standing(db, session_id)
        return page(
            db,
            f"{_EVENT} INDEXED BY events_trace WHERE {TRACE}"
            " AND chat = ? AND seq BETWEEN ? AND ? AND run_id = ? ORDER BY seq LIMIT ?",
            (chat, *window, run_id, limit),
            max_bytes,
        )


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
