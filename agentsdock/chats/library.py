"""The files of chats: taken in, listed, given out, copied into forks, and cleared away."""

import os
import secrets
import urllib.parse
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import trio
from attrs import frozen

from agentsdock.backends.protocol import AttachedFile
from agentsdock.chats.registry import Registry
from agentsdock.chats.tasks import hand_over
from agentsdock.config import Settings
from agentsdock.files import storage
from agentsdock.files.names import clean_name, content_type_of
from agentsdock.files.storage import NO_SPACE, Storage
from agentsdock.logs import get_logger
from agentsdock.model.errors import BadRequest, NotFound, TooLarge, Unavailable
from agentsdock.model.events import Draft
from agentsdock.model.files import FileRecord, ListedFile
from agentsdock.model.times import iso_now
from agentsdock.store.protocol import PutFile, Store, StoreClosed

log = get_logger()


@frozen
class Library:
    """Every method raises NotFound for a chat, or a file of the chat, that is not there."""

    settings: Settings
    store: Store
    registry: Registry
    storage: Storage
    nursery: trio.Nursery

    async def upload(
        self,
        session_id: str,
        filename: str | None,
        declared: str | None,
        data: AsyncGenerator[bytes, None],
    ) -> dict[str, Any]:
        """The record of a new file; it is whole and durable, or there is none.

        Raises TooLarge and Unavailable.
        """
        self.registry.require(session_id).require_present()
        file_id = f"file_{secrets.token_hex(8)}"
        name = clean_name(filename)
        limit = self.settings.max_upload_bytes
        try:
            path, size = await self.storage.write(file_id, name, data, limit)
        except storage.TooLarge:
            raise TooLarge(f"a file may have {limit} bytes at most") from None
        except OSError as error:
            raise not_stored(error) from error
        record = FileRecord(
            id=file_id,
            session_id=session_id,
            kind="upload",
            filename=name,
            path=str(path),
            size=size,
            content_type=content_type_of(name, declared),
            created_at=iso_now(),
        )
        await hand_over(self.nursery, self._register, record)
        return record.public()

    async def _register(self, record: FileRecord) -> None:
        try:
            chat = self.registry.require(record.session_id)
            async with chat.lock:
                chat.require_present()
                event = Draft("file_uploaded", {"file": record.public()})
                await self.registry.write(chat, [event], [PutFile(record, 0)])
        except StoreClosed:
            raise  # It may be durable: the next start knows.
        except Exception:
            await self.storage.remove(record.id)
            raise

    async def page(
        self, session_id: str, *, limit: int | None, offset: int, content_prefix: str
    ) -> dict[str, Any]:
        """The body of ``GET …/files``; without a limit everything."""
        self.registry.require(session_id)
        found, total = await self.store.files(
            session_id,
            limit=-1 if limit is None else limit,
            offset=offset,
            content_prefix=content_prefix,
        )
        return {
            "files": [listed.public() for listed in found],
            "total": total,
            "offset": offset,
            "limit": limit,
            "has_more": offset + len(found) < total,
        }

    async def find(self, session_id: str, file_id: str) -> ListedFile:
        self.registry.require(session_id)
        found = await self.store.file(session_id, file_id)
        if found is None:
            raise NotFound("file not found")
        return found

    async def event(self, session_id: str, file_id: str) -> dict[str, Any]:
        """The event that brought a file into its chat."""
        listed = await self.find(session_id, file_id)
        [row] = await self.store.read_from(session_id, listed.event_seq - 1, max_rows=1)
        return row.decode()

    async def find_linked(self, session_id: str, target: str) -> FileRecord:
        self.registry.require(session_id)
        for name in link_targets(target):
            found = await self.store.linked_file(session_id, name)
            if found is not None:
                return found.record
        raise NotFound("this file is not registered in this chat")

    async def find_anywhere(self, file_id: str, session_id: str | None) -> FileRecord:
        owner = session_id or await self.store.owner_of(file_id)
        if owner is None:
            raise NotFound("file not found")
        return (await self.find(owner, file_id)).record

    async def attached(self, session_id: str, file_ids: Sequence[str]) -> tuple[AttachedFile, ...]:
        """The files of a turn, as its CLI reads them.

        Raises NotFound, also for one that is not on the disk any more.
        """
        records = [(await self.find(session_id, file_id)).record for file_id in file_ids]
        if records:
            await trio.to_thread.run_sync(_require_on_disk, records)
        return tuple(AttachedFile(r.path, r.filename, r.content_type) for r in records)

    async def copy(self, record: dict[str, Any], session_id: str) -> FileRecord | None:
        """A copy for a fork; None where the file cannot be copied."""
        source = await self.store.file(record["session_id"], record["id"])
        if source is None:
            return None
        kind = "art" if source.record.kind == "artifact" else "file"
        file_id = f"{kind}_{secrets.token_hex(8)}"
        try:
            path, size = await self.storage.clone(source.record.path, file_id)
        except OSError as error:
            log.warning("file not copied into a fork", file=record["id"], error=error.strerror)
            return None
        return copied(source.record, file_id, session_id, str(path), size)

    async def ids(self, session_id: str) -> list[str]:
        """Of all files of a chat."""
        found, _ = await self.store.files(session_id, limit=-1)
        return [listed.record.id for listed in found]

    async def clear(self, file_ids: Sequence[str]) -> None:
        """Remove the files of a chat that is gone."""
        for file_id in file_ids:
            await self.storage.remove(file_id)

    async def sweep(self, names: Sequence[str]) -> None:
        """Remove what is nobody's of the files that an earlier life of the server left."""
        known = await self.store.known_files()
        lost = [name for name in names if name not in known]
        await self.clear(lost)
        if lost:
            log.info("unfinished files removed", files=len(lost))


def copied(source: FileRecord, file_id: str, session_id: str, path: str, size: int) -> FileRecord:
    return FileRecord(
        id=file_id,
        session_id=session_id,
        kind=source.kind,
        filename=source.filename,
        path=path,
        size=size,
        content_type=source.content_type,
        created_at=source.created_at,
        title=source.title,
        text=source.text,
        source_path=source.source_path,
        forked_from_file_id=source.id,
        forked_from_session_id=source.session_id,
    )


def link_targets(target: str) -> list[str]:
    """What a link's target may mean.  Raises BadRequest for a file of another machine."""
    if target[:7].lower() != "file://":
        return [target]
    host, slash, path = target[7:].partition("/")
    if host.lower() not in ("", "localhost"):
        raise BadRequest("the target must be a file of this machine")
    # Some write paths into such links as they are.
    return list(dict.fromkeys([urllib.parse.unquote(slash + path), slash + path]))


def _require_on_disk(records: Sequence[FileRecord]) -> None:
    for record in records:
        if not os.path.isfile(record.path):
            raise NotFound(f"the file {record.filename} ({record.id}) is not on the disk any more")


def not_stored(error: OSError) -> Unavailable:
    if error.errno in NO_SPACE:
        return Unavailable(
            "There is no space left to store this.",
            code="storage_full",
            action="Free some space in the state directory's file system.",
        )
    log.error("file not stored", error=error.strerror)
    return Unavailable("This file cannot be stored right now; try again in a moment.")
