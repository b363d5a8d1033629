"""Files on their way: a form that is read as it is sent, a download that goes on where it broke.

What is not whole yet lies beside its target, for the user alone.
"""

import errno
import mimetypes
import os
import pathlib
import re
import secrets
import urllib.parse
from collections.abc import AsyncGenerator, Callable
from typing import BinaryIO

import httpx
import trio
from attrs import frozen

from agentsdock.client.errors import ApiError, refusal, unreachable

PIECE_BYTES = 256 * 1024
TRIES = 5
"""In a row without a byte between them."""
RETRY_SECONDS = 1.0
UPLOAD_TIMEOUT = httpx.Timeout(60.0, read=600.0)
"""The server answers once the whole file is on its disk."""

Progress = Callable[[int], None]
"""Told how many bytes more have been sent or received."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


@frozen
class Upload:
    """The multipart form of one open file."""

    file: BinaryIO
    name: str
    size: int
    boundary: str

    @classmethod
    def of(cls, file: BinaryIO, name: str) -> "Upload":
        return cls(file, name, os.fstat(file.fileno()).st_size, secrets.token_hex(16))

    @property
    def headers(self) -> dict[str, str]:
        length = len(self._head()) + self.size + len(self._tail())
        return {
            "content-type": f"multipart/form-data; boundary={self.boundary}",
            "content-length": str(length),
        }

    async def body(self, progress: Progress) -> AsyncGenerator[bytes, None]:
        """Raises ApiError for a file that is not as long as it was."""
        yield self._head()
        left = self.size
        while left and (piece := await self._piece(left)):
            yield piece
            left -= len(piece)
            progress(len(piece))
        if left:
            raise ApiError(f"{self.name} became shorter while it was sent")
        yield self._tail()

    async def _piece(self, left: int) -> bytes:
        return await trio.to_thread.run_sync(self.file.read, min(PIECE_BYTES, left))

    def _head(self) -> bytes:
        plain = re.sub(r"[^A-Za-z0-9 ._-]", "_", self.name)
        full = urllib.parse.quote(os.fsencode(self.name), safe="")
        kind = mimetypes.guess_type(self.name)[0] or "application/octet-stream"
        return (
            f"--{self.boundary}\r\n"
            f'Content-Disposition: form-data; name="file"; filename="{plain}"; '
            f"filename*=UTF-8''{full}\r\n"
            f"Content-Type: {kind}\r\n\r\n"
        ).encode()

    def _tail(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode()


@frozen
class Download:
    """A file of a chat that is to become ``target``."""

    http: httpx.AsyncClient
    path: str
    target: pathlib.Path
    file_id: str
    overwrite: bool
    progress: Progress

    async def run(self) -> None:
        """Raises ApiError and OSError (FileExistsError for the target); what came is kept."""
        part = self.target.with_name(f".{self.file_id}.part")
        with await trio.to_thread.run_sync(self._open, part) as file:
            self.progress(file.seek(0, os.SEEK_END))
            await self._fill(file)
            await trio.to_thread.run_sync(os.fsync, file.fileno())
        self._put(part)

    def _open(self, part: pathlib.Path) -> BinaryIO:
        if not self.overwrite and os.path.lexists(self.target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.target))
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return open(os.open(part, flags, 0o600), "r+b", buffering=0)

    async def _fill(self, file: BinaryIO) -> None:
        failures = 0
        while True:
            before = file.tell()
            try:
                if await self._go_on(file):
                    return
            except httpx.TransportError as error:
                failures = 1 if file.tell() > before else failures + 1
                if failures >= TRIES:
                    raise unreachable(str(self.http.base_url).rstrip("/"), error) from error
                await trio.sleep(RETRY_SECONDS)

    async def _go_on(self, file: BinaryIO) -> bool:
        """Ask for the rest; whether it is all there now.

        The content of a file id never changes, so what is there counts, unless it is too much.
        """
        at = file.tell()
        headers = {"range": f"bytes={at}-"} if at else {}
        async with self.http.stream("GET", self.path, headers=headers) as answer:
            if answer.status_code == 416 and at:
                if answer.headers.get("content-range") == f"bytes */{at}":
                    return True
                self._begin_anew(file, at)
                return False
            if not answer.is_success:
                raise refusal(answer.status_code, await answer.aread())
            self._begin(file, at, answer)
            async for piece in answer.aiter_raw():
                await trio.to_thread.run_sync(_write, file, piece)
                self.progress(len(piece))
        return True

    def _begin(self, file: BinaryIO, at: int, answer: httpx.Response) -> None:
        if answer.status_code == 206:
            found = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
            if found is None or int(found[1]) != at:
                raise ApiError("the server sent another part of the file", status=206)
        elif at:
            self._begin_anew(file, at)

    def _begin_anew(self, file: BinaryIO, at: int) -> None:
        file.seek(0)
        file.truncate()
        self.progress(-at)

    def _put(self, part: pathlib.Path) -> None:
        if self.overwrite:
            part.replace(self.target)
            return
        os.link(part, self.target)
        part.unlink()


def _write(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
