"""The write side, as plain functions on a connection.

``commit`` takes units to disk: together in one transaction, each inside a savepoint of its
own.  When the engine fails the whole transaction, each unit gets one of its own, so that the
one that does not fit cannot take others with it.
"""

from collections.abc import Sequence
from typing import assert_never

import apsw
from attrs import frozen

from agentsdock.model.events import Committed, Encoded, with_seq
from agentsdock.model.sessions import Head
from agentsdock.model.turns import Run
from agentsdock.store import search
from agentsdock.store.engine import blames_engine, transaction, translate
from agentsdock.store.protocol import (
    AnswerExists,
    Change,
    DropQueued,
    DropSession,
    KeepAnswer,
    PutDiff,
    PutFile,
    PutQueued,
    PutSession,
    RunClosed,
    RunExists,
    SessionGone,
    StoreBusy,
)
from agentsdock.store.records import dump

PURGE_ROWS = 200
"""Rows of a deleted chat that leave in one transaction: about a millisecond."""


@frozen
class Claim:
    run: Run


@frozen
class Renew:
    run: Run


@frozen
class Finish:
    run: Run


@frozen
class Unit:
    """What is durable together or not at all."""

    session_id: str
    events: Sequence[Encoded]
    changes: Sequence[Change]
    step: Claim | Renew | Finish | None = None


@frozen
class Done:
    committed: list[Committed]
    head: Head


Outcome = Done | Exception


def commit(db: apsw.Connection, units: Sequence[Unit], now: float) -> list[Outcome]:
    """One outcome per unit, in order.  ``now`` is the wall clock in epoch seconds."""
    try:
        with transaction(db):
            if len(units) == 1:
                return [apply(db, units[0], now)]
            return [_isolated(db, unit, now) for unit in units]
    except Exception as error:
        told = [translate(error, db) for _ in units]
    if len(units) == 1 or isinstance(told[0], StoreBusy):
        return list(told)
    return [outcome for unit in units for outcome in commit(db, [unit], now)]


def _isolated(db: apsw.Connection, unit: Unit, now: float) -> Outcome:
    db.execute("SAVEPOINT unit")
    try:
        done = apply(db, unit, now)
    except Exception as error:
        if blames_engine(error):
            raise
        db.execute("ROLLBACK TO unit")
        db.execute("RELEASE unit")
        return translate(error, db)
    db.execute("RELEASE unit")
    return done


def apply(db: apsw.Connection, unit: Unit, now: float) -> Done:
    """Carry out a unit inside the open transaction."""
    for change in unit.changes:
        _change(db, unit.session_id, change, now)
    if any(isinstance(change, DropSession) for change in unit.changes):
        return Done([], Head())
    chat = _chat(db, unit.session_id)
    head = _head(db, chat)
    if unit.step is not None:
        _step(db, chat, unit.step, first=head.seq + 1, last=head.seq + len(unit.events))
    if not unit.events:
        return Done([], head)
    return _append(db, chat, head, unit.events)


def _chat(db: apsw.Connection, session_id: str) -> int:
    row = db.execute("SELECT chat FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise SessionGone(f"there is no chat {session_id}")
    chat: int = row[0]
    return chat


def _head(db: apsw.Connection, chat: int) -> Head:
    row = db.execute(
        "SELECT seq, at, type, agent_seq, agent_at, agent_type, touched_at"
        " FROM heads WHERE chat = ?",
        (chat,),
    ).fetchone()
    assert row is not None, "every chat has a head"
    return Head(*row)


def _append(db: apsw.Connection, chat: int, head: Head, events: Sequence[Encoded]) -> Done:
    committed = [
        Committed(seq, event.type, event.run_id, with_seq(seq, event.body))
        for seq, event in enumerate(events, head.seq + 1)
    ]
    try:
        db.executemany(
            "INSERT INTO events (chat, seq, type, run_id, body) VALUES (?, ?, ?, ?, ?)",
            [(chat, event.seq, event.type, event.run_id, event.body) for event in committed],
        )
    except apsw.ConstraintError as error:
        if "events.run_id" not in str(error):
            raise
        raise RunClosed("the run has its terminal event already") from error
    head = moved(head, events)
    db.execute(
        "UPDATE heads SET seq = ?, at = ?, type = ?, agent_seq = ?, agent_at = ?,"
        " agent_type = ?, touched_at = ? WHERE chat = ?",
        (
            head.seq,
            head.at,
            head.type,
            head.agent_seq,
            head.agent_at,
            head.agent_type,
            head.touched_at,
            chat,
        ),
    )
    return Done(committed, head)


def moved(head: Head, events: Sequence[Encoded]) -> Head:
    """Where a timeline stands after more events."""
    spoken: tuple[int, Encoded] | None = None
    touched_at = head.touched_at
    for seq, event in enumerate(events, head.seq + 1):
        if event.agent_visible:
            spoken = seq, event
        if event.touches and event.ts > (touched_at or ""):
            touched_at = event.ts
    last = events[-1]
    return Head(
        seq=head.seq + len(events),
        at=last.ts,
        type=last.type,
        agent_seq=spoken[0] if spoken else head.agent_seq,
        agent_at=spoken[1].ts if spoken else head.agent_at,
        agent_type=spoken[1].type if spoken else head.agent_type,
        touched_at=touched_at,
    )


def _step(
    db: apsw.Connection, chat: int, step: Claim | Renew | Finish, *, first: int, last: int
) -> None:
    run, body = step.run, dump(step.run)
    if isinstance(step, Claim):
        try:
            db.execute(
                "INSERT INTO runs (id, chat, open, owner, fence, first_seq, body)"
                " VALUES (?, ?, 1, ?, ?, ?, ?)",
                (run.id, chat, run.owner, run.fence, first, body),
            )
        except apsw.ConstraintError as error:
            raise RunExists(f"{run.session_id} has an open run, or {run.id} was used") from error
        return
    finished = isinstance(step, Finish)
    db.execute(
        "UPDATE runs SET open = ?, last_seq = ?, owner = ?, fence = ?, body = ?"
        " WHERE id = ? AND chat = ? AND open"
        " AND (fence < ? OR (fence = ? AND owner = ?))",
        (
            not finished,
            last if finished else None,
            run.owner,
            run.fence,
            body,
            run.id,
            chat,
            run.fence,
            run.fence,
            run.owner,
        ),
    )
    if not db.changes():
        raise RunClosed(f"{run.id} is closed, or another server has taken it over")


def _change(db: apsw.Connection, session_id: str, change: Change, now: float) -> None:
    match change:
        case PutSession(session):
            _put_session(db, session.id, dump(session))
        case DropSession(dropped):
            chat = _chat(db, dropped)
            db.execute("DELETE FROM sessions WHERE chat = ?", (chat,))
            db.execute("INSERT INTO dropped (chat, id) VALUES (?, ?)", (chat, dropped))
        case PutQueued(turn):
            db.execute(
                "INSERT INTO queue (id, chat, position, body) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET chat = excluded.chat,"
                " position = excluded.position, body = excluded.body",
                (turn.queued_id, _chat(db, turn.session_id), turn.position, dump(turn)),
            )
        case DropQueued(queued_id):
            db.execute("DELETE FROM queue WHERE id = ?", (queued_id,))
        case KeepAnswer():
            _keep(db, _chat(db, session_id), change, now)
        case PutDiff(run_id, patch):
            db.execute(
                "INSERT INTO diffs (chat, run_id, patch) VALUES (?, ?, ?)",
                (_chat(db, session_id), run_id, patch),
            )
        case PutFile(record, index):
            chat = _chat(db, session_id)
            db.execute(
                "INSERT INTO files (id, chat, event_seq, content_type, body)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    record.id,
                    chat,
                    _head(db, chat).seq + 1 + index,
                    record.content_type,
                    dump(record),
                ),
            )
        case _:
            assert_never(change)


def _put_session(db: apsw.Connection, session_id: str, body: bytes) -> None:
    if db.execute("SELECT 1 FROM dropped WHERE id = ?", (session_id,)).fetchone():
        raise SessionGone(f"the chat {session_id} was deleted")
    db.execute(
        "INSERT INTO sessions (id, body) VALUES (?, ?)"
        " ON CONFLICT (id) DO UPDATE SET body = excluded.body",
        (session_id, body),
    )
    db.execute(
        "INSERT INTO heads (chat, seq, agent_seq)"
        " SELECT chat, 0, 0 FROM sessions WHERE id = ? ON CONFLICT (chat) DO NOTHING",
        (session_id,),
    )


def _keep(db: apsw.Connection, chat: int, answer: KeepAnswer, now: float) -> None:
    db.execute(
        "DELETE FROM answers WHERE scope = ? AND key = ? AND expires_at <= ?",
        (answer.scope, answer.key, now),
    )
    db.execute(
        "INSERT INTO answers (scope, key, chat, request_hash, status, body, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET status = excluded.status,"
        " body = excluded.body, expires_at = excluded.expires_at"
        " WHERE request_hash = excluded.request_hash",
        (
            answer.scope,
            answer.key,
            chat,
            answer.request_hash,
            answer.status,
            answer.body,
            answer.expires_at,
        ),
    )
    if not db.changes():
        raise AnswerExists(f"{answer.scope} holds the answer to another request under this key")


_OF_A_CHAT = ("events", "runs", "queue", "answers", "diffs", "files")


def tidy(db: apsw.Connection, now: float) -> bool:
    """A small piece of cleaning up; whether there may be more to do."""
    with transaction(db):
        db.execute(
            "DELETE FROM answers WHERE rowid IN"
            " (SELECT rowid FROM answers WHERE expires_at <= ? LIMIT ?)",
            (now, PURGE_ROWS),
        )
        if db.changes():
            return True
        row = db.execute("SELECT chat FROM dropped WHERE NOT purged LIMIT 1").fetchone()
        if row is None:
            return False
        _purge(db, row[0])
        return True


def _purge(db: apsw.Connection, chat: int) -> None:
    for table in _OF_A_CHAT:
        db.execute(
            f"DELETE FROM {table} WHERE rowid IN"  # noqa: S608
            f" (SELECT rowid FROM {table} WHERE chat = ? LIMIT ?)",
            (chat, PURGE_ROWS),
        )
        if db.changes():
            return
    if search.purge(db, chat, PURGE_ROWS):
        return
    db.execute("DELETE FROM heads WHERE chat = ?", (chat,))
    db.execute("UPDATE dropped SET purged = 1 WHERE chat = ?", (chat,))
