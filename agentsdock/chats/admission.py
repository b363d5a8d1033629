"""A user's message: validated, then started or queued; answered once per idempotency key."""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import trio
from attrs import define, evolve, field, frozen

from agentsdock.backends.protocol import AttachedFile
from agentsdock.chats import queue_events
from agentsdock.chats.chat import Chat
from agentsdock.chats.choosing import require_effort, with_runtime
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.launching import Attached
from agentsdock.chats.registry import Registry
from agentsdock.logs import get_logger
from agentsdock.model.errors import BadRequest, Conflict
from agentsdock.model.events import Committed
from agentsdock.model.ids import new_queued_id
from agentsdock.model.requests import Idempotency, PostTurn
from agentsdock.model.times import iso_now
from agentsdock.model.turns import QueuedTurn
from agentsdock.store.protocol import Change, KeepAnswer, PutQueued, StoreError

ANSWER_SECONDS = 24 * 3600.0
log = get_logger()
_encode = msgspec.json.Encoder().encode


@define
class Admission:
    """Admits messages.  Its caller lets it outlive the request."""

    registry: Registry
    dispatcher: Dispatcher
    measure: Callable[[str, str, Sequence[AttachedFile]], None]
    """Refuses, for a backend, a message and its files that can never fit its transport."""
    attached: Attached
    _working: dict[tuple[str, str], trio.Event] = field(factory=dict)
    """Keyed requests in work; a repeat waits for the first."""

    async def post(
        self, session_id: str, message: PostTurn, idempotency: Idempotency | None
    ) -> bytes:
        """The answer's JSON body.  Raises DockError."""
        if idempotency is None:
            return await self._answer(session_id, message, None)
        place = (idempotency.scope, idempotency.key)
        while place in self._working:
            await self._working[place].wait()
        done = self._working[place] = trio.Event()
        try:
            kept = await self.registry.store.answer(*place)
            if kept is None:
                return await self._answer(session_id, message, idempotency)
        finally:
            del self._working[place]
            done.set()
        if kept.request_hash != idempotency.request_hash:
            raise Conflict(
                "this Idempotency-Key was used for another request",
                code="idempotency_key_reused",
                action="Send a new key with a new request.",
            )
        return kept.body

    async def _answer(
        self, session_id: str, message: PostTurn, idempotency: Idempotency | None
    ) -> bytes:
        chat = self.registry.require(session_id)
        async with chat.lock:
            turn = _turn(chat, message)
            await self._check(chat, turn)
            keep = _Keep(chat, idempotency)
            reply = await self._start_or_queue(chat, turn, keep)
            body = _body(chat, reply)
            await self._keep(chat, keep(reply))
        return body

    async def _check(self, chat: Chat, turn: QueuedTurn) -> None:
        """Everything that can be said before anything is stored."""
        chat.require_present()
        chat.require_unarchived()
        require_effort(with_runtime(chat.session, turn), turn.effort)
        await self.check_message(chat, turn)

    async def check_message(self, chat: Chat, turn: QueuedTurn) -> None:
        """Whether this chat could run it, whenever that is.  Raises DockError."""
        if turn.chat_references:
            raise BadRequest("references to other chats are not supported by this server")
        if not (turn.prompt.strip() or turn.file_ids):
            raise BadRequest("the message is empty")
        files = await self.attached(chat.id, turn.file_ids)
        self.measure(with_runtime(chat.session, turn).backend, turn.prompt, files)

    async def _start_or_queue(
        self, chat: Chat, turn: QueuedTurn, keep: "_Keep"
    ) -> dict[str, object]:
        pressure = self.dispatcher.pressure() or self.dispatcher.rival(chat)
        if chat.busy or chat.queue or pressure is not None:
            waits_for = None if chat.busy or chat.queue else pressure
            return await self._queue(chat, turn, waits_for, keep)
        started = await self.dispatcher.start(
            chat,
            turn,
            queued=False,
            changes=lambda run: keep({"run_id": run.id, "queued": False, "event": None}),
        )
        return {"run_id": started.run_id, "queued": False, "event": _raw(started)}

    async def _queue(
        self, chat: Chat, turn: QueuedTurn, pressure: str | None, keep: "_Keep"
    ) -> dict[str, object]:
        turn = evolve(turn, deferred=pressure is not None)
        place = len(chat.queue) + 1
        events = [queue_events.queued(chat, turn, place)]
        if pressure is not None:
            events.append(queue_events.deferred(turn, pressure, place))
        reply = {"queued": True, "queued_id": turn.queued_id, "position": place, "event": None}
        changes: list[Change] = [PutQueued(turn), *keep(reply)]
        committed = await self.registry.write(chat, events, changes)
        chat.queue.append(turn)
        self.dispatcher.slots.wake()
        return {**reply, "event": _raw(committed[0])}

    async def _keep(self, chat: Chat, answers: Sequence[KeepAnswer]) -> None:
        """Keep the whole answer.  The one that went with the turn lacks only its event, so a
        crash or a full disk here starts nothing twice."""
        if not answers:
            return
        try:
            await self.registry.write(chat, [], answers)
        except StoreError as error:
            log.warning("answer not kept whole", chat=chat.id, error=str(error))


@frozen
class _Keep:
    """Makes the kept answer of a keyed request; nothing for one without a key."""

    chat: Chat
    idempotency: Idempotency | None

    def __call__(self, reply: Mapping[str, object]) -> list[KeepAnswer]:
        if self.idempotency is None:
            return []
        asked = self.idempotency
        expires = time.time() + ANSWER_SECONDS
        body = _body(self.chat, reply)
        return [KeepAnswer(asked.scope, asked.key, asked.request_hash, 200, body, expires)]


def _body(chat: Chat, reply: Mapping[str, object]) -> bytes:
    return _encode({**reply, "session": chat.detail()})


def _raw(event: Committed) -> msgspec.Raw:
    return msgspec.Raw(event.body)


def _turn(chat: Chat, message: PostTurn) -> QueuedTurn:
    return QueuedTurn(
        queued_id=new_queued_id(),
        session_id=chat.id,
        position=chat.next_position(),
        prompt=message.prompt,
        created_at=iso_now(),
        display_prompt=message.display_prompt,
        file_ids=message.file_ids,
        backend=message.backend,
        model=message.model,
        effort=message.effort,
        client_capabilities=message.client_capabilities,
        chat_references=message.chat_references,
    )
