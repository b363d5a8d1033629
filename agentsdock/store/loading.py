"""What the house keeps in memory, read at the start.

A row that cannot be read is moved to the table ``damaged`` and told; the others go on.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import apsw
from attrs import define, field

from agentsdock.model.sessions import Head, Session
from agentsdock.model.times import iso_now
from agentsdock.store.engine import transaction
from agentsdock.store.protocol import Loaded, SetAside
from agentsdock.store.records import Unreadable, dump, read_queued, read_run, read_session

T = TypeVar("T")

_TABLES = {"session": "sessions", "queued": "queue", "run": "runs"}


@define
class _Damage:
    kind: str
    key: str
    chat: int
    body: bytes
    error: str


@define
class _Loader:
    damage: list[_Damage] = field(factory=list)
    repaired: list[Session] = field(factory=list)

    def rows(
        self, kind: str, rows: Iterable[tuple[Any, ...]], read: Callable[[bytes], T]
    ) -> Iterable[tuple[int, T, tuple[Any, ...]]]:
        """(chat number, what was read, further columns) of each readable row."""
        for key, chat, body, *more in rows:
            try:
                yield chat, read(body), tuple(more)
            except Unreadable as error:
                self.damage.append(_Damage(kind, key, chat, body, str(error)))

    def session(self, body: bytes) -> Session:
        session, repaired = read_session(body)
        if repaired:
            self.repaired.append(session)
        return session


def load(db: apsw.Connection) -> Loaded:
    loader = _Loader()
    found = list(
        loader.rows(
            "session",
            db.execute(
                "SELECT id, chat, body, seq, at, type, agent_seq, agent_at, agent_type, touched_at"
                " FROM sessions JOIN heads USING (chat) ORDER BY chat"
            ),
            loader.session,
        )
    )
    chats = {chat for chat, _, _ in found}
    queue = loader.rows(
        "queued",
        db.execute(
            "SELECT queue.id, chat, queue.body FROM queue JOIN sessions USING (chat)"
            " ORDER BY chat, position, queue.rowid"
        ),
        read_queued,
    )
    runs = loader.rows(
        "run",
        db.execute(
            "SELECT runs.id, chat, runs.body FROM runs JOIN sessions USING (chat)"
            " WHERE open ORDER BY chat"
        ),
        read_run,
    )
    loaded = Loaded(
        sessions=tuple(session for _, session, _ in found),
        heads={session.id: Head(*head) for _, session, head in found},
        queue=tuple(turn for chat, turn, _ in queue if chat in chats),
        open_runs=tuple(run for chat, run, _ in runs if chat in chats),
        set_aside=tuple(SetAside(row.kind, row.key, row.error) for row in loader.damage),
    )
    # Without space to move them the rows stay where they are and are told again next time.
    with suppress(apsw.FullError, apsw.IOError, apsw.BusyError):
        _put_right(db, loader)
    return loaded


def _put_right(db: apsw.Connection, loader: _Loader) -> None:
    if not (loader.damage or loader.repaired):
        return
    with transaction(db):
        for session in loader.repaired:
            db.execute("UPDATE sessions SET body = ? WHERE id = ?", (dump(session), session.id))
        for row in loader.damage:
            db.execute(
                "INSERT INTO damaged (kind, key, chat, body, error, at) VALUES (?, ?, ?, ?, ?, ?)",
                (row.kind, row.key, row.chat, row.body, row.error, iso_now()),
            )
            db.execute(
                f"DELETE FROM {_TABLES[row.kind]} WHERE id = ?",  # noqa: S608
                (row.key,),
            )
