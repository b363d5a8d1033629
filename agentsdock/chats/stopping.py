"""Stops turns: what a person stops pauses the queue, what the server stops does not."""

from typing import Any

import trio
from attrs import define

from agentsdock.chats import queue_events
from agentsdock.chats.chat import Chat, paused
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.live import LiveTurn
from agentsdock.chats.registry import Registry
from agentsdock.chats.tasks import hand_over
from agentsdock.store.protocol import PutQueued
from agentsdock.turns.verdicts import StopReason

STOP_SECONDS = 90.0


@define
class Stopper:
    registry: Registry
    dispatcher: Dispatcher
    nursery: trio.Nursery

    async def stop(self, chat: Chat, reason: StopReason = StopReason.USER) -> dict[str, Any]:
        """Stop what runs and pause what waits; the receipt, once the terminal event is durable.

        The verdict is set before anything is waited for.  After STOP_SECONDS the receipt says
        ``pending``; whatever is missing by then still comes.  Raises StoreError, after the end,
        where the pause could not be made durable.
        """
        deadline = trio.current_time() + STOP_SECONDS
        live = _stop_live(chat, reason)
        held = False
        try:
            with trio.move_on_at(deadline):
                live = await hand_over(self.nursery, self._hold, chat, reason, live)
                held = True
        finally:
            if live is not None:
                with trio.move_on_at(deadline):
                    await live.ended.wait()
        return receipt(live) if held else {**receipt(live), "pending": True}

    async def _hold(self, chat: Chat, reason: StopReason, live: LiveTurn | None) -> LiveTurn | None:
        """Let nothing start that waits; the turn that is stopped."""
        async with chat.lock:
            if reason is StopReason.DELETED and not chat.deleting:
                return live  # it was given up meanwhile
            # A turn that was just being started is meant too.
            live = _stop_live(chat, reason) or live
            if reason is StopReason.USER and not (live and "job_id" in live.run.meta):
                await self._pause(chat)
            return live

    async def _pause(self, chat: Chat) -> None:
        queue = [row if row.hidden or row.paused else paused(row, "stopped") for row in chat.queue]
        rows = [row for row, before in zip(queue, chat.queue, strict=True) if row is not before]
        if not rows:
            return
        changes = [PutQueued(row) for row in rows]
        await self.registry.write(chat, [queue_events.paused(rows)], changes)
        chat.put_queue(queue)

    async def shut_down(self) -> None:
        """End every turn as a shutdown and wait until each has its terminal event."""
        self.dispatcher.closing.set()
        self.dispatcher.slots.wake()
        # A start that was under way may still add one.
        while living := [chat.live for chat in self.registry if chat.live is not None]:
            for live in living:
                live.shut_down()
            await living[0].ended.wait()


def receipt(live: LiveTurn | None) -> dict[str, Any]:
    """What a stop tells; ``live`` is the turn that it met, if there was one."""
    facts = dict.fromkeys(("terminal_seq", "tree_empty", "processes_ended", "elapsed_ms", "rung"))
    idle = {"run_id": None, "pending": False, "outcome": "idle", **facts}
    return {"ok": True, "stopped": True, **(idle if live is None else live.receipt())}


def _stop_live(chat: Chat, reason: StopReason) -> LiveTurn | None:
    if chat.live is not None:
        chat.live.stop(reason)
    return chat.live
