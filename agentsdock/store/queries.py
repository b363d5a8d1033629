"""The read side, as plain functions on a connection.

Bodies are handed out as they lie on disk.  No read is unbounded, so that none keeps the
write-ahead log from being reset.
"""

from contextlib import closing

import apsw

from agentsdock.model.events import Committed
from agentsdock.model.turns import Run
from agentsdock.store.counting import Counts
from agentsdock.store.engine import one_moment
from agentsdock.store.protocol import KeepAnswer, SessionGone
from agentsdock.store.records import read_run

_INDEXED = "raw_event"


def read_from(
    db: apsw.Connection, session_id: str, after: int, max_bytes: int, max_rows: int
) -> list[Committed]:
    with one_moment(db):
        chat, _ = standing(db, session_id)
        return page(
            db,
            "SELECT seq, type, run_id, body FROM events INDEXED BY events_by_seq"
            " WHERE chat = ? AND seq > ? ORDER BY seq LIMIT ?",
            (chat, after, max_rows),
            max_bytes,
        )


def read_page(
    db: apsw.Connection,
    session_id: str,
    *,
    after: int,
    before: int | None,
    limit: int,
    tail: bool,
    without: frozenset[str],
    max_bytes: int,
    counts: Counts,
) -> tuple[list[Committed], int]:
    """See the protocol.  Both answers are of one moment."""
    with one_moment(db):
        chat, last = standing(db, session_id)
        first = max(after, 0) + 1
        if before is not None:
            last = min(last, before - 1)
        if first > last:
            return [], 0
        types = tuple(sorted(without))
        # Sequence numbers have no gaps, so only the types left out have to be counted.
        hidden = _count(db, counts, chat, types, first, last)
        marks = ", ".join("?" * len(types))
        order = "DESC" if tail else "ASC"
        found = page(
            db,
            "SELECT seq, type, run_id, body FROM events INDEXED BY events_by_seq"  # noqa: S608
            " WHERE chat = ? AND seq BETWEEN ? AND ?"
            f" AND type NOT IN ({marks}) ORDER BY seq {order} LIMIT ?",
            (chat, first, last, *types, limit),
            max_bytes,
        )
    return found[::-1] if tail else found, last - first + 1 - hidden


def standing(db: apsw.Connection, session_id: str) -> tuple[int, int]:
    """The chat's number and its last sequence number."""
    row = db.execute(
        "SELECT chat, (SELECT seq FROM heads WHERE heads.chat = sessions.chat)"
        " FROM sessions WHERE id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        raise SessionGone(f"there is no chat {session_id}")
    return row[0], row[1]


def _count(
    db: apsw.Connection, counts: Counts, chat: int, types: tuple[str, ...], first: int, last: int
) -> int:
    """How many events of these types there are: raw events have an index of their own."""
    if not types:
        return 0
    if types != (_INDEXED,):
        return counts.of(db, chat, types, first, last)
    # The partial index is only taken when the type is spelt out.
    [(count,)] = db.execute(
        f"SELECT count(*) FROM events INDEXED BY events_raw WHERE type = '{_INDEXED}'"  # noqa: S608
        " AND chat = ? AND seq BETWEEN ? AND ?",
        (chat, first, last),
    )
    return int(count)


def answer(db: apsw.Connection, scope: str, key: str, now: float) -> KeepAnswer | None:
    row = db.execute(
        "SELECT scope, key, request_hash, status, answers.body, expires_at FROM answers"
        " JOIN sessions USING (chat) WHERE scope = ? AND key = ? AND expires_at > ?",
        (scope, key, now),
    ).fetchone()
    return KeepAnswer(*row) if row else None


def run_events(
    db: apsw.Connection, run_id: str, after: int, max_bytes: int, max_rows: int
) -> tuple[Run | None, list[Committed]]:
    """See the protocol.  Runs of a chat do not overlap, so a run's events need no index."""
    with one_moment(db):
        row = db.execute(
            "SELECT chat, first_seq, ifnull(last_seq, seq), runs.body FROM runs"
            " JOIN sessions USING (chat) JOIN heads USING (chat) WHERE runs.id = ?",
            (run_id,),
        ).fetchone()
        if row is None:
            return None, []
        chat, first, last, body = row
        found = page(
            db,
            "SELECT seq, type, run_id, body FROM events INDEXED BY events_by_seq"
            " WHERE chat = ? AND seq BETWEEN ? AND ? AND run_id = ? ORDER BY seq LIMIT ?",
            (chat, max(first, after + 1), last, run_id, max_rows),
            max_bytes,
        )
    return read_run(body), found


def read_diff(db: apsw.Connection, session_id: str, run_id: str) -> bytes | None:
    with one_moment(db):
        chat, _ = standing(db, session_id)
        row = db.execute(
            "SELECT patch FROM diffs WHERE chat = ? AND run_id = ?", (chat, run_id)
        ).fetchone()
    return row[0] if row else None


def page(
    db: apsw.Connection, sql: str, bindings: tuple[object, ...], max_bytes: int
) -> list[Committed]:
    """Rows of (seq, type, run_id, body) up to ``max_bytes``: at least one if there is any."""
    found: list[Committed] = []
    size = 0
    with closing(db.execute(sql, bindings)) as rows:
        for row in rows:
            event = Committed(*row)
            size += len(event.body)
            if found and size > max_bytes:
                break
            found.append(event)
    return found
