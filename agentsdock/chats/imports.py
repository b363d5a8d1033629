"""History import: what a CLI's own transcript holds of a session becomes part of a chat."""

import pathlib
import secrets
from typing import Any

import trio
from attrs import frozen

from agentsdock.chats.chat import Chat
from agentsdock.chats.registry import Registry
from agentsdock.chats.tasks import hand_over
from agentsdock.config import Settings
from agentsdock.logs import get_logger, where
from agentsdock.model.errors import DockError
from agentsdock.model.events import Draft
from agentsdock.model.sessions import Session
from agentsdock.store.protocol import Store, StoreError
from agentsdock.transcripts import claude, codex, files
from agentsdock.transcripts.reading import Said, Transcript

RUN_PREFIX = "import_"
WAIT_SECONDS = 10.0
_READERS = {"claude": claude.read, "codex": codex.read}

log = get_logger()


@frozen
class Outcome:
    """What an import came to; without ``items`` the message says why."""

    message: str
    items: tuple[Said, ...] = ()
    source: str | None = None


_BEFORE = Outcome("The history was imported before; force adds it again.")


@frozen
class Imports:
    settings: Settings
    store: Store
    registry: Registry
    nursery: trio.Nursery

    async def import_history(
        self, session_id: str, *, force: bool = False, limit: int | None = None
    ) -> dict[str, Any]:
        """The body of ``POST …/import-history``.

        It succeeds whatever the transcript is like, and says what became of it.  Raises
        NotFound and StoreError.
        """
        return await hand_over(self.nursery, self._import, session_id, force, limit)

    async def at_creation(self, session_id: str) -> None:
        """The same for a chat that was just made with a provider's id; never fails.

        Who made the chat waits for WAIT_SECONDS at most; a longer import goes on.
        """
        if self.registry.require(session_id).session.backend not in _READERS:
            return
        try:
            with trio.move_on_after(WAIT_SECONDS):
                await self.import_history(session_id)
        except (DockError, StoreError) as error:
            log.warning("history not imported", chat=session_id, error=str(error))

    async def _import(self, session_id: str, force: bool, limit: int | None) -> dict[str, Any]:
        chat = self.registry.require(session_id)
        if not force and await self._has_imported(chat):
            return _answer(_BEFORE)
        outcome = await self._read(chat.session, limit)
        async with chat.lock:
            chat.require_present()
            # Another import may have come first while the transcript was read.
            if not force and await self._has_imported(chat):
                return _answer(_BEFORE)
            await self.registry.write(chat, _events(chat.session, outcome))
        return _answer(outcome)

    async def _has_imported(self, chat: Chat) -> bool:
        after = 0
        while after < chat.head.seq:
            rows, after = await self.store.outline(chat.id, after)
            if any(row.type == "history_imported" and is_import(row.run_id) for row in rows):
                return True
        return False

    async def _read(self, session: Session, limit: int | None) -> Outcome:
        provider_id = session.binding().session_id
        if provider_id is None:
            return Outcome("This chat has no provider session whose history could be imported.")
        if session.backend not in _READERS:
            return Outcome("Cursor keeps no transcript that could be read; its session goes on.")
        most = self.settings.history_import_limit
        wanted = most if limit is None else min(limit, most)
        try:
            return await trio.to_thread.run_sync(self._read_file, session, provider_id, wanted)
        except Exception as error:
            log.warning("history not imported", chat=session.id, error=where(error))
            return Outcome(f"The transcript could not be read: {error}")

    def _read_file(self, session: Session, provider_id: str, limit: int) -> Outcome:
        path = self._find(session.backend, provider_id)
        if path is None:
            return Outcome(f"No transcript of the session {provider_id} was found.")
        transcript = Transcript(
            _READERS[session.backend], limit, self.settings.history_import_text_chars
        )
        for line in files.lines(path):
            if line is None:
                transcript.too_long()
            else:
                transcript.add(line)
        items = transcript.items
        left_out = ", ".join(f"{count} {why}" for why, count in transcript.unused.most_common())
        message = f"Imported {len(items)} messages." if items else "The transcript has no messages."
        if left_out:
            message += f" Left out: {left_out}."
        return Outcome(message, items, str(path))

    def has_transcript(self, session: Session) -> bool:
        """Whether Claude has, for the chat's folder, the conversation that it would resume."""
        provider_id = session.claude.session_id or session.fork_from
        root = self.settings.claude_projects_root
        return bool(provider_id and files.find_claude(root, provider_id, session.cwd))

    def _find(self, backend: str, provider_id: str) -> pathlib.Path | None:
        if backend == "claude":
            return files.find_claude(self.settings.claude_projects_root, provider_id)
        return files.find_codex(self.settings.codex_sessions_root, provider_id)


def is_import(run_id: str | None) -> bool:
    return run_id is not None and run_id.startswith(RUN_PREFIX)


def _events(session: Session, outcome: Outcome) -> list[Draft]:
    told = {
        "backend": session.backend,
        "provider_session_id": session.binding().session_id,
        "source_path": outcome.source,
        "message": outcome.message,
    }
    if not outcome.items:
        return [Draft("history_imported", told)]
    run_id = f"{RUN_PREFIX}{secrets.token_hex(6)}"
    return [
        Draft("history_imported", {"run_id": run_id, **told}),
        *(_event(run_id, session.backend, said) for said in outcome.items),
    ]


def _event(run_id: str, backend: str, said: Said) -> Draft:
    named = ("turn_started", "prompt") if said.role == "user" else ("assistant_text", "text")
    when = {} if said.ts is None else {"ts": said.ts}
    payload = {"run_id": run_id, "backend": backend, named[1]: said.text, "imported": True}
    return Draft(named[0], {**payload, **when})


def _answer(outcome: Outcome) -> dict[str, Any]:
    return {
        "ok": True,
        "imported": len(outcome.items),
        "source_path": outcome.source,
        "message": outcome.message,
    }
