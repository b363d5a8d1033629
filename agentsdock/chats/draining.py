"""Starts the turns that wait: the one that was forced first, then the longest waiting."""

import math
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from attrs import define, evolve

from agentsdock.chats import queue_events
from agentsdock.chats.chat import Chat
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.pressure import MEMORY_POLL_SECONDS
from agentsdock.chats.registry import Registry
from agentsdock.config import Settings
from agentsdock.logs import get_logger, where
from agentsdock.model.errors import DockError, Unavailable
from agentsdock.model.turns import QueuedTurn
from agentsdock.store.protocol import DropQueued, PutQueued, StoreError

log = get_logger()


@define
class Drainer:
    """Takes one head at a time out of each queue, under the lock of its chat."""

    registry: Registry
    settings: Settings
    dispatcher: Dispatcher
    nursery: trio.Nursery

    async def keep_draining(self) -> None:
        """Start waiting turns for as long as the server lives."""
        slots = self.dispatcher.slots
        while not self.dispatcher.closing.is_set():
            slots.changed = trio.Event()
            wait = self._start_ready()
            with trio.move_on_after(wait):
                await slots.changed.wait()

    def _start_ready(self) -> float:
        """Seconds until there is reason to look again without being woken."""
        wait = math.inf
        now = trio.current_time()
        slots = self.dispatcher.slots
        slots.held = None
        ready = [chat for chat in self.registry if not chat.draining and chat.may_start]
        for chat in sorted(ready, key=_precedence):
            if chat.retry_at > now:
                wait = min(wait, chat.retry_at - now)
                continue
            if (rival := self.dispatcher.rival(chat)) is not None:
                self._hold(chat, rival)
                continue
            slots.held = slots.held or slots.reason_to_wait()
            if slots.held is None:
                slots.take()
                self._drain(chat, self._start_head)
            else:
                wait = min(wait, MEMORY_POLL_SECONDS)
                self._hold(chat, slots.held)
        return wait

    def _hold(self, chat: Chat, reason: str) -> None:
        if not chat.queue[0].deferred:
            self._drain(chat, partial(self._hold_head, reason))

    def _drain(self, chat: Chat, take_head: Callable[[Chat], Awaitable[None]]) -> None:
        chat.draining = True
        self.nursery.start_soon(self._draining, chat, take_head)

    async def _draining(self, chat: Chat, take_head: Callable[[Chat], Awaitable[None]]) -> None:
        try:
            async with chat.lock:
                await take_head(chat)
        finally:
            chat.draining = False
            self.dispatcher.slots.wake()

    async def _hold_head(self, reason: str, chat: Chat) -> None:
        if chat.may_start:
            await self._defer(chat, chat.queue[0], reason)

    async def _start_head(self, chat: Chat) -> None:
        """Start the head of a queue in the slot that was taken for it."""
        self.dispatcher.slots.taken -= 1
        if self.dispatcher.closing.is_set() or not chat.may_start:
            return
        row = chat.queue[0]
        if self.dispatcher.rival(chat) is not None:
            return
        try:
            await self.dispatcher.start(chat, row, queued=True)
        except (Unavailable, StoreError) as error:
            await self._try_later(chat, row, str(error))
        except DockError as error:
            await self._refuse(chat, row, error)
        except Exception as error:
            log.error("turn could not be started", chat=chat.id, error=where(error))
            await self._try_later(chat, row, "An error in the server kept this turn from starting.")

    async def _try_later(self, chat: Chat, row: QueuedTurn, reason: str) -> None:
        chat.retry_at = trio.current_time() + self.settings.busy_retry_seconds
        await self._defer(chat, row, reason)

    async def _defer(self, chat: Chat, row: QueuedTurn, reason: str) -> None:
        """Say once that a row has to wait, and why."""
        if row.deferred:
            return
        row = evolve(row, deferred=True)
        event = queue_events.deferred(row, reason, len(chat.queue))
        try:
            await self.registry.write(chat, [event], [PutQueued(row)])
        except StoreError as error:
            log.warning("deferral not written", chat=chat.id, error=str(error))
            chat.retry_at = trio.current_time() + self.settings.busy_retry_seconds
        else:
            chat.replace_row(row)

    async def _refuse(self, chat: Chat, row: QueuedTurn, error: DockError) -> None:
        """The row can never start: say why and take it out, so that it does not come back."""
        events = queue_events.refused(chat, row, error.message)
        try:
            await self.registry.write(chat, events, [DropQueued(row.queued_id)])
        except StoreError as failure:
            await self._try_later(chat, row, str(failure))
        else:
            chat.drop_row(row.queued_id)


def _precedence(chat: Chat) -> tuple[bool, float]:
    """A forced row takes the place of the turn that was ended for it."""
    head = chat.queue[0]
    return not head.promoted, head.position
