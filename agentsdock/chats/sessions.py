"""Chats as things: made, listed, changed, read, deleted."""

import os
from typing import Any

import trio
from attrs import define, evolve, fields_dict

from agentsdock.backends.efforts import spelled
from agentsdock.chats.bindings import with_binding
from agentsdock.chats.chat import Chat
from agentsdock.chats.choosing import (
    backend_changed,
    require_backend,
    require_effort,
    switch_backend,
    with_fitting_effort,
)
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.library import Library
from agentsdock.chats.registry import Registry, touched
from agentsdock.chats.stopping import Stopper
from agentsdock.config import Settings
from agentsdock.model.errors import BadRequest, Conflict
from agentsdock.model.events import Draft
from agentsdock.model.ids import PROVIDER_ID, new_session_id
from agentsdock.model.requests import UNSET, CreateSession, PatchSession, Unset
from agentsdock.model.sessions import (
    DEFAULT_FOLDER,
    DEFAULT_TITLE,
    Head,
    ProviderBinding,
    Session,
    detail,
)
from agentsdock.model.times import iso_now
from agentsdock.store.protocol import DropSession, PutSession
from agentsdock.turns.verdicts import StopReason

DELETE_SECONDS = 15.0
_POLICIES = (
    "cursor_permission_mode",
    "claude_permission_mode",
    "codex_approval_policy",
    "codex_sandbox_mode",
    "codex_approvals_reviewer",
    "provider_jobs_access",
)
_NULL_CLEARS = ("model", "effort", "codex_permission_profile")


@define
class Sessions:
    """Everything about chats that is not a turn.  Values were checked at the edge."""

    registry: Registry
    dispatcher: Dispatcher
    stopper: Stopper
    settings: Settings
    library: Library

    async def create(self, request: CreateSession) -> dict[str, Any]:
        """A new chat at the top of its section.  Raises BadRequest."""
        session = self._new(request)
        chat = Chat(session)
        self.registry.add(chat)
        try:
            event = Draft("session_created", {"session": detail(session, Head())})
            await self.registry.write(chat, [event], [PutSession(session)])
        except BaseException:
            self.registry.forget(chat)
            raise
        return chat.detail()

    def _new(self, request: CreateSession) -> Session:
        backend = request.backend or self.settings.default_backend
        require_backend(backend)
        now = iso_now()
        archived = bool(request.archived)
        pinned = bool(request.pinned) and not archived
        provider_id = _provider_id(request)
        session = Session(
            id=new_session_id(),
            created_at=now,
            updated_at=now,
            title=_title(request, backend, provider_id),
            folder=(request.folder or "").strip() or DEFAULT_FOLDER,
            cwd=_folder(request.cwd) or self.settings.cwd,
            backend=backend,
            model=_word(request.model),
            effort=spelled(backend, request.effort),
            system_prompt=_blank_to_none(request.system_prompt),
            pinned=pinned,
            pinned_at=now if pinned else None,
            archived=archived,
            archived_at=now if archived else None,
            codex_permission_profile=_word(request.codex_permission_profile),
        )
        policies = {
            name: value for name in _POLICIES if (value := getattr(request, name)) is not None
        }
        session = evolve(session, **policies)
        require_effort(session, request.effort)
        if provider_id:
            bound = with_binding(session, backend, ProviderBinding(session_id=provider_id))
            session = evolve(bound, locked=True)
        return evolve(session, sort_order=self.registry.top_of(Chat(session).section))

    async def patch(self, session_id: str, request: PatchSession) -> dict[str, Any]:
        """Change what was sent.  Raises NotFound, Conflict and BadRequest."""
        chat = self.registry.require(session_id)
        async with chat.lock:
            chat.require_present()
            events = self._check_patch(chat, request)
            await self.registry.change(chat, lambda s: self._patched(s, request), events)
            self.dispatcher.slots.wake()
            return chat.detail()

    def _check_patch(self, chat: Chat, request: PatchSession) -> list[Draft]:
        _require_no_new_mode_of_a_running_claude(chat, request.claude_permission_mode)
        backend = request.backend
        if not isinstance(backend, str) or backend == chat.session.backend:
            return []
        switch_backend(chat.session, backend)
        return [backend_changed(chat.session.backend, backend)]

    def _patched(self, session: Session, request: PatchSession) -> Session:
        before = Chat(session).section
        if isinstance(request.backend, str):
            session = switch_backend(session, request.backend)
        session = evolve(session, **_plain_changes(request), **_policy_changes(request))
        session = evolve(session, effort=spelled(session.backend, session.effort))
        require_effort(session, request.effort)
        session = with_fitting_effort(session)
        session = evolve(session, cwd=session.cwd or self.settings.cwd)
        session = _archive(_pin(session, request.pinned), request.archived)
        if Chat(session).section != before:
            session = evolve(session, sort_order=self.registry.top_of(Chat(session).section))
        return touched(session)

    async def delete(self, session_id: str) -> dict[str, Any]:
        """End what runs, then drop the chat.  Raises Conflict if it does not end in time."""
        chat = self.registry.get(session_id)
        if chat is None:
            return {"ok": True, "deleted": False, "deleted_jobs": 0}
        chat.deleting = True
        try:
            with trio.move_on_after(DELETE_SECONDS) as waiting:
                await self.stopper.stop(chat, StopReason.DELETED)
            if waiting.cancelled_caught:
                raise Conflict("the running turn has not ended yet; try again in a moment")
            async with chat.lock:
                deleted = not chat.gone
                if deleted:
                    files = await self.library.ids(chat.id)
                    await self.registry.write(chat, [], [DropSession(chat.id)])
                    self.registry.forget(chat)
                    await self.library.clear(files)
        finally:
            chat.deleting = False
            self.dispatcher.slots.wake()
        return {"ok": True, "deleted": deleted, "deleted_jobs": 0}

    async def mark_read(self, session_id: str, seq: int | None) -> dict[str, Any]:
        """Move the read marker forward, to the latest if ``seq`` is None.

        A client may have read beyond what an agent said last, but not beyond what there is.
        """
        chat = self.registry.require(session_id)
        wanted = chat.head.agent_seq if seq is None else min(seq, chat.head.seq)

        def read(session: Session) -> Session:
            return evolve(
                session,
                last_read_agent_event_seq=max(session.last_read_agent_event_seq, wanted),
                last_read_agent_event_at=iso_now(),
                manual_unread=False,
            )

        async with chat.lock:
            chat.require_present()
            await self.registry.change(chat, read)
        return chat.detail()

    async def mark_unread(self, session_id: str) -> dict[str, Any]:
        chat = self.registry.require(session_id)
        last = max(chat.head.agent_seq - 1, 0)
        async with chat.lock:
            chat.require_present()
            await self.registry.change(
                chat,
                lambda session: evolve(session, last_read_agent_event_seq=last, manual_unread=True),
            )
        return chat.detail()


def _provider_id(request: CreateSession) -> str | None:
    wanted = (request.provider_session_id or "").strip()
    if wanted and not PROVIDER_ID.match(wanted):
        raise BadRequest(
            "the provider session id must begin with a letter or digit and hold only letters, "
            "digits, and . _ : - (256 at most)"
        )
    return wanted or None


def _title(request: CreateSession, backend: str, provider_id: str | None) -> str:
    given = (request.title or "").strip()
    if given:
        return given
    return f"Resumed {backend.capitalize()} {provider_id[:8]}" if provider_id else DEFAULT_TITLE


def _folder(cwd: str | None) -> str | None:
    return os.path.expanduser(cwd.strip()) if cwd and cwd.strip() else None


def _blank_to_none(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _word(text: str | None) -> str | None:
    return (text or "").strip() or None


def _plain_changes(request: PatchSession) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name in ("title", "folder", "cwd"):
        value = getattr(request, name)
        if isinstance(value, str):
            changes[name] = value.strip()
    if "folder" in changes:
        changes["folder"] = changes["folder"] or DEFAULT_FOLDER
    if "cwd" in changes:
        changes["cwd"] = os.path.expanduser(changes["cwd"])
    for name in _NULL_CLEARS:
        if (value := getattr(request, name)) is not UNSET:
            changes[name] = _word(value)
    prompt = request.system_prompt
    if not isinstance(prompt, Unset):
        changes["system_prompt"] = _blank_to_none(prompt)
    return changes


def _policy_changes(request: PatchSession) -> dict[str, Any]:
    defaults = fields_dict(Session)
    return {
        name: value if isinstance(value, str) else defaults[name].default
        for name in _POLICIES
        if (value := getattr(request, name)) is not UNSET
    }


def _require_no_new_mode_of_a_running_claude(chat: Chat, mode: Any) -> None:
    running = chat.live is not None and chat.live.run.backend == "claude"
    if running and mode is not UNSET and (mode or "default") != chat.session.claude_permission_mode:
        raise Conflict("the permission mode cannot change while a Claude turn is running")


def _pin(session: Session, pinned: Any) -> Session:
    if not isinstance(pinned, bool) or pinned == session.pinned:
        return session
    return evolve(session, pinned=pinned, pinned_at=iso_now() if pinned else None)


def _archive(session: Session, archived: Any) -> Session:
    if not isinstance(archived, bool):
        return session
    if not archived:
        return evolve(session, archived=False, archived_at=None)
    at = session.archived_at or iso_now()
    return evolve(session, archived=True, archived_at=at, pinned=False, pinned_at=None)
