"""The list of files that an agent leaves for its turn: the way without the helper program.

A CLI is told of ``sessions/<chat>/manifests/current.json`` in the state folder.  What stands
there is handed out once it has not changed for a moment, and what is left of it when the tree
has gone, before the turn's terminal event.
"""

import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import msgspec
import trio
from attrs import frozen

from agentsdock.backends.prompt_envelope import manifest_path
from agentsdock.chats.authority import Grant
from agentsdock.chats.entries import Entry, read_entries
from agentsdock.chats.publishing import Publishing
from agentsdock.files.folders import open_private
from agentsdock.files.sources import open_below
from agentsdock.logs import get_logger, where
from agentsdock.model.errors import Conflict, DockError, Unprocessable
from agentsdock.model.events import Draft
from agentsdock.store.protocol import StoreError

FOLDER = "sessions"
MAX_BYTES = 4 * 1024 * 1024
LOOK_SECONDS = 0.5
STABLE_SECONDS = 0.75
LAST_SECONDS = 120.0
"""What the files that are left at the end may keep a turn from ending."""

log = get_logger()

Signature = tuple[object, ...]


@frozen
class Found:
    """A manifest as it was read, and how it and its files were then."""

    entries: tuple[Entry, ...]
    signature: Signature


class Manifest:
    """The ``TurnManifest`` of one run."""

    def __init__(self, publishing: Publishing, state_dir: pathlib.Path, grant: Grant) -> None:
        self._publishing = publishing
        self._state_dir = state_dir
        self._holder = grant
        self._path = pathlib.Path(manifest_path(state_dir, grant.session_id))
        self._scope = trio.CancelScope()
        self._tried: Signature | None = None
        """What needs no other attempt: it was published, or refused as it is."""
        self._refusal: str | None = None
        self._published = 0

    async def prepare(self) -> None:
        try:
            await trio.to_thread.run_sync(_make_place, self._state_dir, self._path)
        except OSError as error:
            log.warning("no place for a manifest", run=self._holder.run_id, error=error.strerror)

    def leave(self) -> None:
        self._scope.cancel()

    async def follow(self, over: trio.Event) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as watching:
                    watching.start_soon(self._watch)
                    await over.wait()
                    watching.cancel_scope.cancel()
                with trio.move_on_after(LAST_SECONDS) as last:
                    await self._finish()
                if last.cancelled_caught:
                    await self._tell("Copying the files took too long.")
        except Exception as error:
            log.error("manifest not read", run=self._holder.run_id, error=where(error))
            await self._tell("The server failed to read the list; its log says where.")
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(_clear, self._path)

    async def _watch(self) -> None:
        seen: Signature | None = None
        since = 0.0
        while True:
            await trio.sleep(LOOK_SECONDS)
            try:
                found = await self._look()
            except Unprocessable:
                continue  # It may be half written; the end tells what is wrong with it.
            now = trio.current_time()
            if found is None:
                seen = None
            elif found.signature != seen:
                seen, since = found.signature, now
            elif now - since > STABLE_SECONDS and found.signature != self._tried:
                await self._publish(found)

    async def _finish(self) -> None:
        """Publish what is left; what cannot be published is told."""
        try:
            found = await self._look()
        except Unprocessable as error:
            await self._tell(error.message)
            return
        if found is None:
            return
        if found.signature != self._tried:
            await self._publish(found)
        if self._refusal is not None:
            await self._tell(self._refusal)

    async def _look(self) -> Found | None:
        """Raises Unprocessable.  A listed file may be one that nobody can look at, for ever."""
        if not _is_there(self._path):
            return None  # As for nearly every turn: no thread for that.
        return await trio.to_thread.run_sync(
            _read, self._state_dir, self._path, abandon_on_cancel=True
        )

    async def _publish(self, found: Found) -> None:
        self._refusal = None
        publication_id = f"manifest-{self._holder.run_id}-{self._published + 1}"
        try:
            await self._publishing.publish_new(self._holder, publication_id, found.entries)
        except Conflict:
            pass  # The turn was stopped meanwhile.
        except DockError as error:
            self._refusal = error.message
        else:
            self._published += 1
        self._tried = found.signature

    async def _tell(self, why: str) -> None:
        chat = self._publishing.registry.get(self._holder.session_id)
        if chat is None or chat.live is None:
            return
        told = {
            "run_id": self._holder.run_id,
            "path": str(self._path),
            "error": "The files that the agent listed were not handed out.",
            "detail": why,
            **chat.live.run.meta,
        }
        try:
            await self._publishing.registry.write(chat, [Draft("artifact_error", told)])
        except StoreError as error:
            log.warning("refused manifest not told of", chat=chat.id, error=str(error))


def _is_there(path: pathlib.Path) -> bool:
    return os.path.lexists(path)


def _make_place(state_dir: pathlib.Path, path: pathlib.Path) -> None:
    folder = state_dir
    for part in path.relative_to(state_dir).parts[:-1]:
        folder /= part
        os.close(open_private(folder))
    path.unlink(missing_ok=True)


def _clear(path: pathlib.Path) -> None:
    """Remove the list, and its folders where the agent left nothing else in them."""
    try:
        path.unlink(missing_ok=True)
        for folder in path.parents[:2]:
            folder.rmdir()
    except OSError:
        pass  # Something else is there; the next start removes it.


def purge(state_dir: pathlib.Path) -> None:
    """Remove the lists that an earlier life left: no turn of it runs any more."""
    shutil.rmtree(state_dir / FOLDER, ignore_errors=True)


def _read(state_dir: pathlib.Path, path: pathlib.Path) -> Found | None:
    """None where there is no manifest.  Raises Unprocessable."""
    try:
        descriptor = open_below(str(state_dir), path.relative_to(state_dir).parts)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(error.strerror or "it cannot be opened") from error
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _unreadable(f"it has more than {MAX_BYTES} bytes")
    entries = _entries(data)
    return Found(entries, (_stamp(found), *(_stamp_of(entry.path) for entry in entries)))


def _entries(data: bytes) -> tuple[Entry, ...]:
    try:
        content: Any = msgspec.json.decode(data, type=dict[str, list[str | dict[str, Any]]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(str(error)) from error
    if list(content) != ["files"]:
        raise _unreadable("it must hold nothing but files")
    return read_entries(content["files"])


def _stamp_of(path: str) -> Sequence[int]:
    """How a file is; nothing where there is none yet."""
    try:
        return _stamp(os.lstat(path))
    except (OSError, ValueError):
        return ()


def _stamp(found: os.stat_result) -> Sequence[int]:
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _unreadable(why: str) -> Unprocessable:
    return Unprocessable(f"The manifest cannot be read: {why}.", loc=("body", "files"))
