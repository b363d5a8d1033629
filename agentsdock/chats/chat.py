"""One chat in memory: what is durable of it, and what runs in it right now."""

import time
from typing import TYPE_CHECKING

import msgspec
import trio
from attrs import define, evolve, field

from agentsdock.model.errors import Conflict, NotFound
from agentsdock.model.sessions import DEFAULT_FOLDER, Head, Session, detail, summary
from agentsdock.model.turns import QueuedTurn

if TYPE_CHECKING:
    from agentsdock.chats.live import LiveTurn

_encode = msgspec.json.Encoder().encode


@define(eq=False)
class Chat:
    """The state of a chat.  Whoever starts, stops or re-orders turns holds ``lock``."""

    session: Session
    head: Head = field(factory=Head)
    queue: list[QueuedTurn] = field(factory=list)
    """Waiting rows in the order in which they will run."""
    live: "LiveTurn | None" = None
    lock: trio.Lock = field(factory=trio.Lock)
    deleting: bool = False
    """Nothing starts any more; ``gone`` once it is done."""
    gone: bool = False
    retry_at: float = 0.0
    """Trio time before which a head whose runtime was not usable is left alone."""
    draining: bool = False
    """The drainer is about to start or to hold the head of the queue."""
    order: tuple[object, ...] = field(init=False)
    """Sort key of the list: section, then place in it."""
    _summary: bytes | None = None

    def __attrs_post_init__(self) -> None:
        self.order = _order(self.session)

    def update(self, session: Session) -> None:
        self.session = session
        self.order = _order(session)
        self._summary = None

    def advance(self, head: Head) -> None:
        self.head = head
        self._summary = None

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def busy(self) -> bool:
        return self.live is not None

    @property
    def may_start(self) -> bool:
        """Whether the head of the queue could start, as far as this chat is concerned."""
        waiting = bool(self.queue) and not self.queue[0].paused
        return waiting and not (self.busy or self.deleting or self.gone or self.session.archived)

    @property
    def section(self) -> tuple[object, ...]:
        session = self.session
        if session.archived:
            return ("archived",)
        return ("pinned",) if session.pinned else ("folder", session.folder)

    def summary(self) -> bytes:
        """The list row as JSON, kept until something in it changes."""
        if self._summary is None:
            self._summary = _encode(summary(self.session, self.head))
        return self._summary

    def detail(self) -> dict[str, object]:
        return detail(self.session, self.head)

    def next_position(self) -> float:
        """Behind every row of this chat and, by the clock, behind those of other chats."""
        now = time.time()
        return max(now, self.queue[-1].position + 1e-3) if self.queue else now

    def require_present(self) -> None:
        """Raises NotFound once the chat has been deleted, Conflict while it is."""
        if self.gone:
            raise NotFound("session not found")
        if self.deleting:
            raise Conflict("this chat is being deleted")

    def require_unarchived(self) -> None:
        if self.session.archived:
            raise Conflict("this chat is archived; unarchive it to send messages")

    def rows(self) -> list[dict[str, object]]:
        """Waiting rows as clients see them; hidden ones leave gaps in the positions."""
        return [
            public_row(row, place)
            for place, row in enumerate(self.queue, start=1)
            if not row.hidden
        ]

    def put_queue(self, rows: list[QueuedTurn]) -> None:
        """What waits from now on.  A new head does not wait for what kept the old one."""
        if [row.queued_id for row in rows[:1]] != [row.queued_id for row in self.queue[:1]]:
            self.retry_at = 0.0
        self.queue = rows

    def replace_row(self, row: QueuedTurn) -> None:
        self.put_queue([row if row.queued_id == old.queued_id else old for old in self.queue])

    def drop_row(self, queued_id: str) -> None:
        self.put_queue([row for row in self.queue if row.queued_id != queued_id])


def _order(session: Session) -> tuple[object, ...]:
    folder = session.folder.strip() or DEFAULT_FOLDER
    return (
        session.archived,
        not session.pinned or session.archived,
        folder.casefold(),
        folder,  # Two whose names differ in case only stand beside each other, each by itself.
        session.sort_order,
        session.created_at,
        session.id,
    )


def paused(row: QueuedTurn, reason: str) -> QueuedTurn:
    return evolve(row, paused=True, pause_reason=reason, promoted=False)


def public_row(row: QueuedTurn, place: int) -> dict[str, object]:
    """A waiting turn as clients see it; its prompt is the text that the timeline shows."""
    return {
        "queued_id": row.queued_id,
        "session_id": row.session_id,
        "prompt": row.shown_prompt,
        "file_ids": list(row.file_ids),
        "backend": row.backend,
        "model": row.model,
        "effort": row.effort,
        "display_prompt": row.display_prompt,
        "purpose": row.purpose,
        "digest_job_id": None,
        "digest_detail": None,
        "source_session_id": None,
        "target_session_id": None,
        "chat_references": list(row.chat_references),
        "cross_chat_envelope_id": None,
        "cross_chat_exchange_id": None,
        "cross_chat_exchange_leg_id": None,
        "cross_chat_exchange_status": False,
        "cross_chat_obligation_ids": [],
        "cross_chat_exchange_ids": [],
        "created_at": row.created_at,
        "position": place,
        "paused": row.paused,
        "pause_reason": row.pause_reason,
        "promoted": row.promoted,
        "state": "queued",
    }
