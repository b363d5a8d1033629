"""Files that an agent hands out: copied, told of in the timeline, receipted once.

A publication is whole or does not happen.  A repeat of the same one gets the first receipts.
"""

import hashlib
import secrets
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import trio
from attrs import frozen

from agentsdock.chats.authority import Authorities, Holder
from agentsdock.chats.chat import Chat
from agentsdock.chats.library import Library, not_stored
from agentsdock.chats.registry import Registry
from agentsdock.chats.tasks import hand_over
from agentsdock.files.names import clean_name, content_type_of
from agentsdock.files.sources import NotPublishable, Source, open_source, read_source
from agentsdock.files.storage import TooLarge as FileTooLarge
from agentsdock.model.errors import Conflict, Forbidden, TooLarge, Unprocessable
from agentsdock.model.events import Draft
from agentsdock.model.files import FileRecord
from agentsdock.model.times import iso_now
from agentsdock.store.protocol import Change, KeepAnswer, PutFile, Store, StoreClosed

RECEIPT_SECONDS = 604_800.0


@frozen
class Entry:
    """One file of a publication."""

    path: str
    title: str | None = None
    text: str | None = None


@frozen
class Publication:
    publication_id: str
    entries: tuple[Entry, ...]


@frozen
class Publishing:
    store: Store
    registry: Registry
    library: Library
    authorities: Authorities
    nursery: trio.Nursery

    def holder(self, session_id: str, secret: str | None) -> Holder:
        """Who may publish in this chat with the secret.  Raises Forbidden."""
        holder = self.authorities.holder(secret)
        if holder.session_id != session_id:
            raise Forbidden("this capability belongs to another chat")
        return holder

    async def publish(self, holder: Holder, publication: Publication) -> dict[str, Any]:
        """The body of ``POST /api/agent/sessions/{id}/artifacts``.

        Raises Conflict, Unprocessable, TooLarge and Unavailable.
        """
        return await hand_over(self.nursery, self._publish, holder, publication)

    async def _publish(self, holder: Holder, publication: Publication) -> dict[str, Any]:
        chat = self.registry.require(holder.session_id)
        with ExitStack() as opened:
            sources = [self._open(chat, entry, opened) for entry in publication.entries]
            total = sum(source.size for source in sources)
            if total > self.library.settings.max_upload_bytes:
                raise TooLarge("the files of this publication are too large together")
            copies, digest = await self._copy(chat, publication.entries, sources)
        try:
            ids = await self._commit(chat, holder, publication, copies, digest)
        except StoreClosed:
            raise  # It may be durable: the next start knows.
        except Exception:
            await self.library.clear([record.id for record in copies])
            raise
        return await self._receipts(chat, holder, publication, ids)

    def _open(self, chat: Chat, entry: Entry, opened: ExitStack) -> Source:
        settings = self.library.settings
        try:
            source = open_source(entry.path, chat.session.cwd, settings.state_dir)
        except NotPublishable as error:
            raise Unprocessable(str(error), loc=("body", "files")) from error
        opened.callback(source.close)
        return source

    async def _copy(
        self, chat: Chat, entries: Sequence[Entry], sources: Sequence[Source]
    ) -> tuple[list[FileRecord], str]:
        """Copies of all files, and the digest of what is published."""
        copies: list[FileRecord] = []
        whole = hashlib.sha256()
        try:
            for entry, source in zip(entries, sources, strict=True):
                told = [entry.path, entry.title, entry.text, source.size]
                whole.update(msgspec.json.encode(told))
                copies.append(await self._copy_one(chat, entry, source, whole))
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.library.clear([record.id for record in copies])
            raise
        return copies, whole.hexdigest()

    async def _copy_one(
        self, chat: Chat, entry: Entry, source: Source, digest: "hashlib._Hash"
    ) -> FileRecord:
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
        return FileRecord(
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

    async def _commit(
        self,
        chat: Chat,
        holder: Holder,
        publication: Publication,
        copies: list[FileRecord],
        digest: str,
    ) -> list[str]:
        """Tell of the files, or find that this was done before; the ids of the artifacts."""
        scope, key = f"publish {chat.id}", publication.publication_id
        async with chat.lock:
            kept = await self.store.answer(scope, key)
            if kept is not None:
                if kept.request_hash != digest:
                    raise Conflict("this publication_id was used for other files")
                await self.library.clear([record.id for record in copies])
                ids: list[str] = msgspec.json.decode(kept.body)
                return ids
            # From here to the append nothing else runs, so the artifact precedes the end.
            live = chat.live
            if live is None or not self.authorities.is_live(holder.run_id):
                raise Conflict("no turn is running that could hand out files")
            told = {"run_id": holder.run_id, "publication_id": key, "publication_digest": digest}
            drafts = [
                Draft(
                    "artifact_created",
                    {
                        **told,
                        "artifact": record.public(),
                        "publication_index": number,
                        "publication_count": len(copies),
                        **live.run.meta,
                    },
                )
                for number, record in enumerate(copies)
            ]
            ids = [record.id for record in copies]
            body = msgspec.json.encode(ids)
            expires = time.time() + RECEIPT_SECONDS
            changes: list[Change] = [
                *(PutFile(record, number) for number, record in enumerate(copies)),
                KeepAnswer(scope, key, digest, 200, body, expires),
            ]
            await self.registry.write(chat, drafts, changes)
        return ids

    async def _receipts(
        self, chat: Chat, holder: Holder, publication: Publication, ids: Sequence[str]
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
