"""Reading a timeline by its landmarks: semantic pages, the index, traces, helpers.

An outline is built from the few events that frame turns and is kept for the chats that were
read last, so that it only has to be brought up to date.  It stands still while it is read.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from attrs import field, frozen

from agentsdock.chats.chat import Chat
from agentsdock.chats.registry import Registry
from agentsdock.config import Settings
from agentsdock.model.errors import NotFound
from agentsdock.model.events import Committed
from agentsdock.model.requests import ReadPage
from agentsdock.model.times import iso_now
from agentsdock.store.protocol import Span, Store
from agentsdock.timeline.landmarks import Landmark, Outline
from agentsdock.timeline.semantic import select, window
from agentsdock.timeline.subagents import Subagents

KEPT_LANDMARKS = 20_000
"""Of all outlines together; the chats that were not read for longest go first."""

PIECE = 500
"""Landmarks that are dealt with at once, while everybody else waits."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


@frozen
class _Kept:
    """An outline; whoever reads it or adds to it holds the lock."""

    outline: Outline = field(factory=Outline)
    lock: trio.Lock = field(factory=trio.Lock)


@frozen
class Reading:
    """Every method raises NotFound for a chat or run that is not there."""

    settings: Settings
    store: Store
    registry: Registry
    _outlines: "OrderedDict[str, _Kept]" = field(factory=OrderedDict, init=False)

    async def semantic_page(self, session_id: str, request: ReadPage) -> bytes:
        """The body of ``GET /api/sessions/{id}?page_mode=semantic``."""
        chat = self.registry.require(session_id)
        async with self._outline(chat) as outline:
            latest_seq = outline.seq  # what is written while the rest is read follows it
            tail = request.tail and request.after <= 0
            shown = window(
                outline,
                after=request.after,
                before=request.before,
                limit=request.limit,
                tail=tail,
            )
            spans = [
                Span(mark.start_seq, mark.end_seq, spoken=not (mark.answered or mark.job))
                for mark in shown.landmarks
            ]
            # What does not fit is left out at the far end.
            towards = -1 if tail else 1
            rows = (await self.store.spans(chat.id, spans[::towards]))[::towards]
            shown = shown.shortened(len(rows), tail=tail)
            events = []
            for span in rows:
                events.append(_decoded(span))
                await trio.lowlevel.checkpoint()
            bodies = {row.seq: row.body for span in rows for row in span}
            chosen = select(list(zip(shown.landmarks, events, strict=True)))
        fields = {
            "session": chat.detail(),
            "queued_turns": chat.rows(),
            "events_omitted_before": shown.omitted_before,
            "events_omitted_after": shown.omitted_after,
            "latest_seq": latest_seq,
            "event_count": shown.total,
            "semantic_item_count": len(shown.landmarks),
            "semantic_total": shown.total,
            "semantic_omitted_before": shown.omitted_before,
            "semantic_omitted_after": shown.omitted_after,
            "next_semantic_before": shown.next_before,
        }
        return _with_list(
            fields,
            "events",
            (_encode(e) if e["type"] == "job_summary" else bodies[e["seq"]] for e in chosen),
        )

    async def index(self, session_id: str) -> bytes:
        """The body of ``GET …/timeline-index``."""
        chat = self.registry.require(session_id)
        async with self._outline(chat) as outline:
            latest_seq = outline.seq
            await self._count(chat, outline)
            await self._hear(chat, outline)
            rows: list[bytes] = []
            for piece in _pieces(list(outline), PIECE):
                rows += (_encode(landmark.public()) for landmark in piece)
                await trio.lowlevel.checkpoint()
        fields = {
            "session_id": chat.id,
            "latest_seq": latest_seq,
            "event_count": latest_seq,
            "generated_at": iso_now(),
        }
        return _with_list(fields, "landmarks", rows)

    async def trace(
        self, session_id: str, run_id: str, *, anchor: int | None, after: int, limit: int
    ) -> bytes:
        """The body of ``GET …/runs/{run_id}/trace``.

        ``anchor`` is any sequence number of the turn that is meant, where several share a run.
        """
        chat = self.registry.require(session_id)
        async with self._outline(chat) as outline:
            spans = [(turn.start_seq, turn.end_seq) for turn in outline if turn.holds(run_id)]
        spans = spans or await self._span(chat, run_id)
        if anchor is not None:
            spans = [span for span in spans if span[0] <= anchor <= span[1]] or spans[-1:]
        if not spans:
            raise NotFound("run not found")
        first, last = spans[0][0], spans[-1][1]
        rows, more = await self.store.trace(
            chat.id, run_id, (max(first, after + 1), last), limit=limit
        )
        fields = {"has_more": more, "next_after": rows[-1].seq if rows else after}
        return _with_list(fields, "events", (row.body for row in rows))

    async def subagents(self, session_id: str, limit: int) -> dict[str, Any]:
        """The body of ``GET …/subagents``."""
        chat = self.registry.require(session_id)
        latest_seq = chat.head.seq
        helpers = Subagents()
        after = 0
        while rows := await self.store.subagents(chat.id, after):
            helpers.add(_decoded(rows))
            after = rows[-1].seq
        found = helpers.newest(limit)
        return {"session_id": chat.id, **found, "latest_seq": latest_seq}

    async def _span(self, chat: Chat, run_id: str) -> list[tuple[int, int]]:
        """Of a run that is no turn landmark of its own: a job's, a digest's."""
        run, rows = await self.store.run_events(run_id, max_rows=1)
        if run is None or run.session_id != chat.id or not rows:
            return []
        return [(rows[0].seq, chat.head.seq)]

    @asynccontextmanager
    async def _outline(self, chat: Chat) -> AsyncIterator[Outline]:
        """Up to date with what is committed, and left alone until it has been read."""
        kept = self._outlines.setdefault(chat.id, _Kept())
        self._outlines.move_to_end(chat.id)
        outline = kept.outline
        async with kept.lock:
            while outline.seq < chat.head.seq:
                rows, reach = await self.store.outline(chat.id, outline.seq)
                outline.add(_decoded(rows))
                outline.reach(reach)
            self._forget_some()
            yield outline

    async def _count(self, chat: Chat, outline: Outline) -> None:
        """Tools and thoughts of each turn."""
        while rows := await self.store.trace_types(chat.id, outline.traced, outline.seq):
            outline.add_trace(rows)

    async def _hear(self, chat: Chat, outline: Outline) -> None:
        """Look for the latest words of turns that have said nothing at their end."""
        for piece in _pieces(outline.unheard(), PIECE):
            spans = [(turn.start_seq, turn.end_seq) for turn in piece]
            for turn, (_, last), row in zip(
                piece, spans, await self.store.last_texts(chat.id, spans), strict=True
            ):
                turn.hear(_decode(row.body) if row is not None else None, last)

    def _forget_some(self) -> None:
        for session_id in [one for one in self._outlines if self.registry.get(one) is None]:
            del self._outlines[session_id]
        size = sum(len(kept.outline) for kept in self._outlines.values())
        while size > KEPT_LANDMARKS and len(self._outlines) > 1:
            _, oldest = self._outlines.popitem(last=False)
            size -= len(oldest.outline)


def _pieces(items: list[Landmark], size: int) -> Iterator[list[Landmark]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _with_list(fields: dict[str, Any], name: str, rows: Iterable[bytes]) -> bytes:
    """A JSON object with one more key: a list of what is JSON already."""
    return _encode(fields)[:-1] + b',"%b":[' % name.encode() + b",".join(rows) + b"]}"


def _decoded(rows: list[Committed]) -> list[dict[str, Any]]:
    return [_decode(row.body) for row in rows]
