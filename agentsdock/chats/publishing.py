"""Files that an agent hands out: copied, told of in the timeline, receipted once.

A publication is whole or does not happen.  A repeat of the same one gets the first receipts.
"""

import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import trio
from attrs import frozen

from agentsdock.chats.authority import Action, Authorities, Grant
from agentsdock.chats.chat import Chat
from agentsdock.chats.entries import Entry
from agentsdock.chats.library import Library, not_stored
from agentsdock.chats.registry import Registry
from agentsdock.chats.tasks import hand_over
from agentsdock.files.names import clean_name, content_type_of
from agentsdock.files.sources import NotPublishable, Source, open_source, read_source
from agentsdock.files.storage import TooLarge as FileTooLarge
from agentsdock.model.errors import Conflict, TooLarge, Unprocessable
from agentsdock.model.events import Draft
from agentsdock.model.files import FileRecord
from agentsdock.model.times import iso_now
from agentsdock.store.protocol import Change, KeepAnswer, PutFile, Store, StoreClosed

RECEIPT_SECONDS = 604_800.0
CLEAR_SECONDS = 10.0
"""What is left of broken-off copies by then is removed at the next start."""


@frozen
class Publication:
    publication_id: str
    entries: tuple[Entry, ...]


@frozen
class _Copy:
    """A file that was copied; ``mark`` is a digest of what is told of it and of its bytes."""

    entry: Entry
    record: FileRecord
    mark: bytes


Commit = Callable[[Chat, Grant, str, Sequence[_Copy]], Awaitable[list[str]]]


@frozen
class Publishing:
    store: Store
    registry: Registry
    library: Library
    authorities: Authorities
    nursery: trio.Nursery

    def holder(self, session_id: str, secret: str | None) -> Grant:
        """Who may publish in this chat with the secret.  Raises Forbidden."""
        return self.authorities.authorize(secret, session_id, Action.PUBLISH)

    async def publish(self, holder: Grant, publication: Publication) -> dict[str, Any]:
        """The body of ``POST /api/agent/sessions/{id}/artifacts``.

        Raises Conflict, Unprocessable, TooLarge and Unavailable.
        """
        return await hand_over(self.nursery, self._publish, holder, publication)

    async def _publish(self, holder: Grant, publication: Publication) -> dict[str, Any]:
        chat = self.registry.require(holder.session_id)
        copies = await self._copies(chat, publication.entries)
        ids = await self._keep(chat, holder, publication, copies, self._commit_once)
        return await self._receipts(chat, holder, publication, ids)

    async def publish_new(
        self, holder: Grant, publication_id: str, entries: Sequence[Entry]
    ) -> None:
        """Publish those files that this turn has not handed out as they are now.

        Can be cancelled until it begins to tell of them.  Raises as ``publish``.
        """
        chat = self.registry.require(holder.session_id)
        copies = await self._copies(chat, entries)
        publication = Publication(publication_id, tuple(entries))
        await hand_over(
            self.nursery, self._keep, chat, holder, publication, copies, self._commit_new
        )

    async def _copies(self, chat: Chat, entries: Sequence[Entry]) -> tuple[_Copy, ...]:
        with ExitStack() as opened:
            sources = await trio.to_thread.run_sync(self._open_all, chat, entries, opened)
            total = sum(source.size for source in sources)
            if total > self.library.settings.max_upload_bytes:
                raise TooLarge("the files of this publication are too large together")
            return await self._copy_all(chat, entries, sources)

    def _open_all(self, chat: Chat, entries: Sequence[Entry], opened: ExitStack) -> list[Source]:
        state_dir = self.library.settings.state_dir
        sources = []
        for entry in entries:
            try:
                source = open_source(entry.path, chat.session.cwd, state_dir)
            except NotPublishable as error:
                raise Unprocessable(str(error), loc=("body", "files")) from error
            opened.callback(source.close)
            sources.append(source)
        return sources

    async def _copy_all(
        self, chat: Chat, entries: Sequence[Entry], sources: Sequence[Source]
    ) -> tuple[_Copy, ...]:
        copies: list[_Copy] = []
        try:
            for entry, source in zip(entries, sources, strict=True):
                copies.append(await self._copy_one(chat, entry, source))
        except BaseException:
            with trio.move_on_after(CLEAR_SECONDS, shield=True):
                await self._clear(copies)
            raise
        return tuple(copies)

    async def _clear(self, copies: Sequence[_Copy]) -> None:
        await self.library.clear([copy.record.id for copy in copies])

    async def _copy_one(self, chat: Chat, entry: Entry, source: Source) -> _Copy:
        told = [entry.path, entry.title, entry.text, source.size]
        digest = hashlib.sha256(msgspec.json.encode(told))
        file_id = f"art_{secrets.token_hex(8)}"
        name = clean_name(source.name)
        storage = self.library.storage
        try:
            path, size = await storage.write(
                file_id, name, read_source(source, digest), source.size
            )
        except (NotPublishable, FileTooLarge) as error:
            raise Unprocessable(
                str(error) or f"{entry.path} changed while it was copied", loc=("body", "files")
            ) from error
        except OSError as error:
            raise not_stored(error) from error
        record = FileRecord(
            id=file_id,
            session_id=chat.id,
            kind="artifact",
            filename=name,
            path=str(path),
            size=size,
            content_type=content_type_of(name, None),
            created_at=iso_now(),
            title=entry.title,
            text=entry.text,
            source_path=entry.path,
        )
        return _Copy(entry, record, digest.digest())

    async def _keep(
        self,
        chat: Chat,
        holder: Grant,
        publication: Publication,
        copies: Sequence[_Copy],
        commit: Commit,
    ) -> list[str]:
        """Tell of the files under the chat's lock; no copy is left if that fails."""
        try:
            async with chat.lock:
                return await commit(chat, holder, publication.publication_id, copies)
        except StoreClosed:
            raise  # It may be durable: the next start knows.
        except Exception:
            await self._clear(copies)
            raise

    async def _commit_once(
        self, chat: Chat, holder: Grant, key: str, copies: Sequence[_Copy]
    ) -> list[str]:
        """The ids of the artifacts: told now, or when this was published before."""
        scope, digest = f"publish {chat.id}", _digest(copies)
        kept = await self.store.answer(scope, key)
        if kept is not None:
            if kept.request_hash != digest:
                raise Conflict("this publication_id was used for other files")
            await self._clear(copies)
            ids: list[str] = msgspec.json.decode(kept.body)
            return ids
        ids = [copy.record.id for copy in copies]
        expires = time.time() + RECEIPT_SECONDS
        answer = KeepAnswer(scope, key, digest, 200, msgspec.json.encode(ids), expires)
        await self._tell(chat, holder, key, copies, [answer])
        return ids

    async def _commit_new(
        self, chat: Chat, holder: Grant, key: str, copies: Sequence[_Copy]
    ) -> list[str]:
        known = chat.live.handed_out if chat.live is not None else frozenset()
        await self._clear([copy for copy in copies if copy.mark in known])
        new = [copy for copy in copies if copy.mark not in known]
        if new:
            await self._tell(chat, holder, key, new, [])
        return [copy.record.id for copy in new]

    async def _tell(
        self,
        chat: Chat,
        holder: Grant,
        key: str,
        copies: Sequence[_Copy],
        changes: Sequence[Change],
    ) -> None:
        # From here to the append nothing else runs, so the artifact precedes the end.
        live = chat.live
        if live is None or not self.authorities.is_live(holder.run_id):
            raise Conflict("no turn is running that could hand out files")
        drafts = [
            Draft(
                "artifact_created",
                {
                    "run_id": holder.run_id,
                    "publication_id": key,
                    "publication_digest": _digest(copies),
                    "artifact": copy.record.public(),
                    "publication_index": number,
                    "publication_count": len(copies),
                    **live.run.meta,
                },
            )
            for number, copy in enumerate(copies)
        ]
        files = [PutFile(copy.record, number) for number, copy in enumerate(copies)]
        await self.registry.write(chat, drafts, [*files, *changes])
        live.handed_out.update(copy.mark for copy in copies)

    async def _receipts(
        self, chat: Chat, holder: Grant, publication: Publication, ids: Sequence[str]
    ) -> dict[str, Any]:
        receipts = []
        for file_id in ids:
            listed = await self.library.find(chat.id, file_id)
            event = await self.library.event(chat.id, file_id)
            receipts.append(
                {
                    "artifact_id": file_id,
                    "event_id": listed.event_id,
                    "event_seq": listed.event_seq,
                    "run_id": event["run_id"],
                    "filename": listed.record.filename,
                    "content_type": listed.record.content_type,
                    "size": listed.record.size,
                }
            )
        return {
            "ok": True,
            "chat_id": chat.id,
            "publication_id": publication.publication_id,
            "run_id": holder.run_id,
            "receipts": receipts,
        }


def _digest(copies: Sequence[_Copy]) -> str:
    return hashlib.sha256(b"".join(copy.mark for copy in copies)).hexdigest()
