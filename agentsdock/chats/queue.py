"""What a person does with waiting messages: edit, delete or move them, run one now."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from attrs import define, evolve, field

from agentsdock.chats import queue_events
from agentsdock.chats.admission import Admission
from agentsdock.chats.chat import Chat, public_row
from agentsdock.chats.choosing import with_runtime
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.registry import Registry
from agentsdock.chats.tasks import hand_over
from agentsdock.model.errors import BadRequest, Conflict, NotFound, Unavailable
from agentsdock.model.requests import EditQueued
from agentsdock.model.turns import QueuedTurn
from agentsdock.store.protocol import DropQueued, PutQueued
from agentsdock.turns.verdicts import StopReason

Json = dict[str, Any]

REPLAY_SECONDS = 120.0
MAX_REPLAYS = 512
AHEAD = 1e-3
"""Of positions: what lies between a head and the row that is put before it."""


class ForceSendDeferred(Conflict):
    """Nothing was interrupted, since the row could not have taken the running turn's place."""

    def __init__(self, queued_id: str, message: str, remaining: int) -> None:
        super().__init__(
            message,
            code="force_send_deferred",
            action="Try again in a moment.",
            queued_id=queued_id,
            retryable=True,
            delivery_uncertain=False,
            remaining=remaining,
        )


@define
class _Answers:
    """The answers to those who forced a row, by chat and row, for as long as they may repeat."""

    _kept: OrderedDict[tuple[str, str], tuple[float, Json]] = field(factory=OrderedDict)

    def keep(self, chat_id: str, queued_id: str, answer: Json) -> None:
        self.forget(chat_id, queued_id)
        self._kept[chat_id, queued_id] = (trio.current_time() + REPLAY_SECONDS, answer)
        if len(self._kept) > MAX_REPLAYS:
            self._kept.popitem(last=False)

    def get(self, chat_id: str, queued_id: str) -> Json | None:
        expires, answer = self._kept.get((chat_id, queued_id), (0.0, None))
        return answer if trio.current_time() < expires else None

    def forget(self, chat_id: str, queued_id: str) -> None:
        self._kept.pop((chat_id, queued_id), None)


@define
class Queue:
    """Each change is one unit with its event, made under the chat's lock in ``nursery``.

    Every method raises NotFound for a row that is not in this chat's queue, Conflict for a
    hidden one, and StoreError; memory is then as it was.
    """

    registry: Registry
    dispatcher: Dispatcher
    admission: Admission
    nursery: trio.Nursery
    _promoted: _Answers = field(factory=_Answers)

    async def edit(self, session_id: str, queued_id: str, request: EditQueued) -> Json:
        return await self._change(session_id, partial(self._edit, queued_id, request))

    async def delete(self, session_id: str, queued_id: str) -> Json:
        return await self._change(session_id, partial(self._delete, queued_id))

    async def move(self, session_id: str, queued_id: str, direction: str) -> Json:
        """``direction`` is ``up`` or ``down``; at the edge nothing moves."""
        return await self._change(session_id, partial(self._move, queued_id, direction))

    async def run_now(self, session_id: str, queued_id: str, *, accept_deferred: bool) -> Json:
        """Run a row next, in place of what runs.  Answers once both are certain to come.

        A repeat gets the answer of the first.  Raises ForceSendDeferred unless the caller
        takes that as an answer.
        """
        try:
            return await self._change(session_id, partial(self._run_now, queued_id))
        except ForceSendDeferred as deferred:
            if not accept_deferred:
                raise
            return {
                **_outcome(queued_id, interrupted=False, deferred=True),
                "message": deferred.message,
                **deferred.extra,
            }

    async def _change(self, session_id: str, work: Callable[[Chat], Awaitable[Json]]) -> Json:
        chat = self.registry.require(session_id)

        async def locked() -> Json:
            async with chat.lock:
                chat.require_present()
                return await work(chat)

        return await hand_over(self.nursery, locked)

    async def _edit(self, queued_id: str, request: EditQueued, chat: Chat) -> Json:
        place = _find(chat, queued_id)
        if request.prompt is not None and not request.prompt.strip():
            raise BadRequest("the message is empty")
        row = _edited(chat.queue[place], request)
        await self.admission.check_message(chat, row)
        event = queue_events.updated(chat, row, place + 1)
        await self.registry.write(chat, [event], [PutQueued(row)])
        chat.replace_row(row)
        return {"ok": True, "queued_id": queued_id, "item": public_row(row, place + 1)}

    async def _delete(self, queued_id: str, chat: Chat) -> Json:
        row = chat.queue[_find(chat, queued_id)]
        event = queue_events.unqueued(chat, row, "deleted", "The message was deleted.")
        await self.registry.write(chat, [event], [DropQueued(queued_id)])
        chat.drop_row(queued_id)
        self._promoted.forget(chat.id, queued_id)
        self.dispatcher.slots.wake()
        remaining = len(chat.queue)
        return {"ok": True, "unqueued": True, "queued_id": queued_id, "remaining": remaining}

    async def _move(self, queued_id: str, direction: str, chat: Chat) -> Json:
        place = _find(chat, queued_id)
        other = place + (1 if direction == "down" else -1)
        rows, changes = list(chat.queue), []
        if 0 <= other < len(rows):
            if rows[other].hidden:
                raise Conflict("a delivery from another chat is beside it and keeps its place")
            rows[place], rows[other] = _swapped(rows[place], rows[other])
            changes = [PutQueued(rows[place]), PutQueued(rows[other])]
        positions = _positions(rows)
        event = queue_events.moved(queued_id, direction, positions)
        await self.registry.write(chat, [event], changes)
        chat.put_queue(rows)
        self.dispatcher.slots.wake()
        return {"ok": True, "queued_id": queued_id, "positions": positions}

    async def _run_now(self, queued_id: str, chat: Chat) -> Json:
        self.dispatcher.require_open()
        on_its_way = all(row.promoted for row in chat.queue if row.queued_id == queued_id)
        answer = self._promoted.get(chat.id, queued_id)
        if answer is not None and on_its_way:
            return answer
        place = _find(chat, queued_id)
        chat.require_unarchived()
        _check_precedence(chat, place)
        row = chat.queue[place]
        reason = await self._reason_to_wait(chat, row)
        chat.require_present()
        if reason is not None:
            await self._defer(chat, row, reason)
        interrupted = await self._promote(chat, row)
        answer = _outcome(queued_id, interrupted=interrupted, deferred=False)
        self._promoted.keep(chat.id, queued_id, answer)
        return answer

    async def _reason_to_wait(self, chat: Chat, row: QueuedTurn) -> str | None:
        """Why the running turn is left alone.  Raises Conflict for a row that can never start."""
        try:
            with_runtime(chat.session, row)
        except (BadRequest, Conflict) as error:
            raise Conflict(
                error.message,
                code="force_send_not_retryable",
                queued_id=row.queued_id,
                retryable=False,
                delivery_uncertain=False,
            ) from error
        live = chat.live
        if live is None or live.ending:
            return None
        if not live.taken_up:
            return "The running turn has not been taken up by its CLI yet."
        try:
            await self.dispatcher.check(chat, row)
        except Unavailable as error:
            return error.message
        return self.dispatcher.slots.reason_to_wait(after_one_ends=True)

    async def _defer(self, chat: Chat, row: QueuedTurn, reason: str) -> None:
        remaining = len(chat.queue)
        if not row.deferred:
            row = evolve(row, deferred=True)
            event = queue_events.deferred(row, reason, remaining)
            await self.registry.write(chat, [event], [PutQueued(row)])
            chat.replace_row(row)
        raise ForceSendDeferred(row.queued_id, reason, remaining)

    async def _promote(self, chat: Chat, row: QueuedTurn) -> bool:
        """Put the row first, durably, then end what runs; whether that ended a turn."""
        rows = _with_first(chat.queue, row)
        running = chat.live.run.id if chat.live is not None and not chat.live.ending else None
        event = queue_events.run_now(chat, rows[0], running, _positions(rows))
        before = {row.queued_id: row for row in chat.queue}
        changes = [PutQueued(row) for row in rows if row is not before[row.queued_id]]
        await self.registry.write(chat, [event], changes)
        chat.put_queue(rows)
        chat.retry_at = 0.0
        live = chat.live
        interrupts = live is not None and not live.ending
        if live is not None:
            live.stop(StopReason.SUPERSEDED, superseded_by_queued_id=row.queued_id)
        self.dispatcher.slots.wake()
        return interrupts


def _find(chat: Chat, queued_id: str) -> int:
    """The index of a row that a person may touch."""
    for place, row in enumerate(chat.queue):
        if row.queued_id == queued_id:
            if row.hidden:
                raise Conflict("this is a delivery from another chat; it cannot be changed")
            return place
    raise NotFound("queued message not found")


def _edited(row: QueuedTurn, request: EditQueued) -> QueuedTurn:
    """A new prompt drops what belonged to the old one: its shown form and its references."""
    sent = {
        name: value
        for name in ("prompt", "file_ids", "client_capabilities", "chat_references")
        if (value := getattr(request, name)) is not None
    }
    if request.prompt is not None:
        sent = {"display_prompt": None, "chat_references": (), **sent}
    return evolve(row, **sent)


def _swapped(row: QueuedTurn, other: QueuedTurn) -> tuple[QueuedTurn, QueuedTurn]:
    """What stands in the place of each; who moves is not the one that was forced any more."""
    return (
        evolve(other, position=row.position, promoted=False),
        evolve(row, position=other.position, promoted=False),
    )


def _with_first(queue: list[QueuedTurn], row: QueuedTurn) -> list[QueuedTurn]:
    head = queue[0]
    first = evolve(
        row,
        position=row.position if row is head else head.position - AHEAD,
        paused=False,
        pause_reason=None,
        deferred=False,
        promoted=True,
    )
    rest = [evolve(old, promoted=False) if old.promoted else old for old in queue if old is not row]
    return [first, *rest]


def _check_precedence(chat: Chat, place: int) -> None:
    if any(row.hidden for row in chat.queue[:place]):
        raise Conflict("a delivery from another chat is before it and must go first")
    head = chat.queue[0]
    if place and head.promoted and not head.deferred:
        raise Conflict("another message of this chat is just being run; try again in a moment")


def _positions(rows: list[QueuedTurn]) -> list[Json]:
    return [
        {"queued_id": row.queued_id, "position": place}
        for place, row in enumerate(rows, start=1)
        if not row.hidden
    ]


def _outcome(queued_id: str, *, interrupted: bool, deferred: bool) -> Json:
    return {
        "ok": not deferred,
        "queued_id": queued_id,
        "interrupted": interrupted,
        "deferred": deferred,
        "replays_interrupted_message": False,
        "superseded_queued_ids": [],
    }
