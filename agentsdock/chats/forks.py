"""Forks: a new chat that begins with a copy of another one's timeline.

The child is hidden while its timeline is copied, in units of bounded size; the commit that
makes it a chat like any other is the last one.  A child that never got there is removed at the
next start.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import trio
from attrs import evolve, frozen

from agentsdock.backends.protocol import Backend
from agentsdock.chats import memory
from agentsdock.chats.bindings import with_binding
from agentsdock.chats.chat import Chat
from agentsdock.chats.library import Library
from agentsdock.chats.ordering import Ordering
from agentsdock.chats.registry import Registry, encoded
from agentsdock.chats.tasks import hand_over
from agentsdock.config import Settings
from agentsdock.logs import get_logger
from agentsdock.model.errors import Conflict
from agentsdock.model.events import Draft
from agentsdock.model.ids import new_session_id
from agentsdock.model.sessions import ProviderBinding, Session
from agentsdock.model.times import iso_now
from agentsdock.store.protocol import (
    Change,
    DropSession,
    PutDiff,
    PutFile,
    PutSession,
    Store,
    StoreError,
)
from agentsdock.timeline.copying import TimelineCopy, file_of
from agentsdock.turns.verdicts import CLI_NAMES

GIVE_UP_SECONDS = 10.0
"""What is left by then is removed at the next start."""
COPY_ROWS = 200
COPY_BYTES = 1024 * 1024
"""Of one unit: other chats' commits come between."""

Copies = dict[str, dict[str, Any] | None]
"""What became of the parent's files, by their ids; None where one could not be copied."""

log = get_logger()


@frozen
class Forks:
    settings: Settings
    store: Store
    registry: Registry
    library: Library
    has_transcript: Callable[[Session], bool]
    """Whether the CLI has, for the chat's folder, the conversation that it would fork."""
    backends: Mapping[str, Backend]
    nursery: trio.Nursery

    async def fork(self, session_id: str, title: str | None) -> dict[str, Any]:
        """The body of ``POST …/fork``.  Raises DockError and StoreError: nothing is left then."""
        return await hand_over(self.nursery, self._fork, session_id, title)

    async def _fork(self, session_id: str, title: str | None) -> dict[str, Any]:
        parent = self.registry.require(session_id)
        async with parent.lock:
            self._check(parent)
            last = parent.head.seq
            session = await self._session(parent, title)
        child = Chat(session)
        self.registry.add(child)
        files: Copies = {}
        try:
            copied = await self._copy(parent, child, last, files)
        except BaseException:
            with trio.move_on_after(GIVE_UP_SECONDS, shield=True):
                await self._give_up(child, files)
            raise
        told = {"child_id": child.id, "copied_events": copied, "history_copy_error": None}
        try:
            await self.registry.write(parent, [Draft("session_forked", told)])
        except StoreError as error:
            log.warning("fork not noted in its parent", chat=parent.id, error=str(error))
        return {
            "session": child.detail(),
            "sessions": [chat.detail() for chat in self.registry.sorted()],
        }

    def _check(self, parent: Chat) -> None:
        parent.require_present()
        session = parent.session
        if parent.busy:
            raise Conflict("a turn is running in this chat; wait for it or stop it first")
        if not os.path.isabs(session.cwd) or not os.path.isdir(session.cwd):
            raise Conflict(f"the chat's folder is not there: {session.cwd or 'none'}")
        if session.backend != "claude" or not session.locked:
            return
        if session.claude.session_id is None and session.fork_from is None:
            raise Conflict("this chat has no Claude session to fork yet")
        if not self.has_transcript(session):
            raise Conflict("Claude has no transcript of this chat for its folder")

    async def _session(self, parent: Chat, title: str | None) -> Session:
        """The child's fields, hidden as yet.  It never inherits the id of a CLI's session."""
        old = parent.session
        now = iso_now()
        child = evolve(
            old,
            id=new_session_id(),
            created_at=now,
            updated_at=now,
            title=(title or "").strip() or f"Fork of {old.title}",
            parent_id=old.id,
            fork_from=None,
            memory_seed=None,
            memory_seed_used=None,
            memory_forked=None,
            memory_fork_reason=None,
            sort_order=await Ordering(self.registry).room_behind(parent),
            last_read_agent_event_seq=0,
            last_read_agent_event_at=None,
            manual_unread=False,
            locked=False,
            cursor=ProviderBinding(),
            claude=ProviderBinding(),
            codex=ProviderBinding(),
            usage=None,
            initialising=True,
        )
        if not old.locked:
            return child
        source = old.resumes
        if self.backends[old.backend].forks and source is not None:
            # What the source has used is counted again in what comes of it.
            binding = ProviderBinding(used=old.binding().used)
            forked = with_binding(child, old.backend, binding)
            return evolve(forked, locked=True, fork_from=source[1])
        reason = f"The chat has no session of {CLI_NAMES[old.backend]} that can be forked."
        seed = await memory.remember(
            self.store,
            old,
            reason,
            max_chars=self.settings.fork_memory_chars,
            item_chars=self.settings.fork_memory_item_chars,
        )
        return evolve(
            child,
            locked=True,
            memory_seed=seed,
            memory_seed_used=False,
            memory_forked=True,
            memory_fork_reason=reason,
        )

    async def _copy(self, parent: Chat, child: Chat, last: int, files: Copies) -> int:
        """Copy up to a sequence number, then make the child a chat; how many events it got.

        The copied files are noted in ``files`` as they come to be.
        """
        await self.registry.write(child, [], [PutSession(child.session)])
        timeline = TimelineCopy()
        after = 0
        while after < last:
            parent.require_present()
            rows = await self.store.read_from(
                parent.id, after, max_bytes=COPY_BYTES, max_rows=COPY_ROWS
            )
            drafts: list[Draft] = []
            changes: list[Change] = []
            for event in (row.decode() for row in rows if row.seq <= last):
                if not timeline.wants(event):
                    continue
                if event["type"] == "code_diff":
                    changes += await self._diff(parent, event["run_id"])
                copy = None
                if (record := file_of(event)) is not None:
                    copy = await self.library.copy(record, child.id)
                    files[record["id"]] = copy.public() if copy else None
                drafts += timeline.copy(event, files)
                if copy is not None:
                    changes.append(PutFile(copy, len(drafts) - 1))
            await self.registry.write(child, drafts, changes)
            after = rows[-1].seq if rows else last
        parent.require_present()  # Else files may be missing that went with it.
        await self._begin(child, timeline)
        return timeline.copied

    async def _diff(self, parent: Chat, run_id: str) -> list[Change]:
        patch = await self.store.read_diff(parent.id, run_id)
        return [] if patch is None else [PutDiff(run_id, patch)]

    async def _begin(self, child: Chat, timeline: TimelineCopy) -> None:
        closing = timeline.end()
        told = "The timeline of the forked chat was copied."
        if child.session.memory_forked:
            told += f" {child.session.memory_fork_reason} Its next turn is told what was said."
        event = Draft("history_imported", {"message": told, "copied_events": timeline.copied})
        session = evolve(child.session, initialising=False)
        events = encoded(child, [*closing, event])
        read = child.head.agent_seq
        session = evolve(session, last_read_agent_event_seq=read)
        await self.store.append(child.id, events, [PutSession(session)])
        child.update(session)

    async def _give_up(self, child: Chat, files: Copies) -> None:
        self.registry.forget(child)
        try:
            await self.store.append(child.id, (), [DropSession(child.id)])
            await self.library.clear([copy["id"] for copy in files.values() if copy])
        except StoreError as error:
            # The next start removes it.
            log.warning("half a fork is left", chat=child.id, error=str(error))
