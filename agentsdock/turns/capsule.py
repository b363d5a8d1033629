"""Raw recordings of runs: what the CLI wrote and when, and how it left.

A capsule is a magic line and then frames: one kind byte, seconds since the start (float64),
payload length (uint32), payload; all big-endian.  Kinds are ``H`` header, ``D`` stdout bytes,
``C`` recording stopped at its bound, ``T`` trailer; header and trailer are JSON.  While the run
goes on frames are only appended, so a file that a crash has torn is readable up to the tear.
``compress`` makes a gzip of it afterwards.
"""

import gzip
import hashlib
import os
import pathlib
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TypeVar

import msgspec
from attrs import asdict, frozen

from agentsdock.guard.contract import Report
from agentsdock.model.codes import Code

MAGIC = b"agentsdock capsule 1\n"
MAX_FRAME_BYTES = 16 * 1024 * 1024
_FRAME = struct.Struct(">cdI")
_GZIP_MAGIC = b"\x1f\x8b"

T = TypeVar("T")


class CapsuleError(Exception):
    """Not a capsule that this release can read; the message says why."""


@frozen
class Header:
    """What was run.  ``argv_hash`` is the SHA-256 of the argv as it may be shown."""

    backend: str
    version: str | None
    argv_hash: str
    resume_id: str | None
    started_at: float
    """Epoch seconds."""


@frozen
class Trailer:
    """How it left.  ``code`` is the run's ending, None for a success; ``cut_bytes`` is what the
    bound kept out of the recording."""

    exit_code: int | None
    killed: bool
    code: Code | None
    stderr_tail: str
    cut_bytes: int


class CapsuleWriter:
    """Appends one run.  It never raises for the file's sake: ``error`` then says what failed,
    and the recording ends there.  Nothing is created before there is something to write."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        backend: str,
        version: str | None,
        argv: Sequence[str],
        resume_id: str | None,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.error: str | None = None
        shown = "\0".join(argv).encode("utf-8", "surrogateescape")
        self._header = Header(
            backend, version, hashlib.sha256(shown).hexdigest(), resume_id, time.time()
        )
        self._room = max_bytes
        self._cut_bytes = 0
        self._clock = clock
        self._began = clock()
        self._fd: int | None = None
        self._closed = False

    def stdout(self, data: bytes) -> None:
        kept = data[: self._room]
        self._room -= len(kept)
        for start in range(0, len(kept), MAX_FRAME_BYTES):
            self._append(b"D", kept[start : start + MAX_FRAME_BYTES])
        if len(kept) < len(data):
            if not self._cut_bytes:
                self._append(b"C", b"")
            self._cut_bytes += len(data) - len(kept)

    def close(self, report: Report | None, stderr_tail: str, code: Code | None = None) -> None:
        """Write how it ended; only the first call counts."""
        trailer = Trailer(
            exit_code=None if report is None else report.exit_code,
            killed=report is None or report.killed,
            code=code,
            stderr_tail=stderr_tail.encode("utf-8", "replace").decode(),
            cut_bytes=self._cut_bytes,
        )
        self._append(b"T", msgspec.json.encode(asdict(trailer)))
        self._shut()

    def _append(self, kind: bytes, payload: bytes) -> None:
        if self._closed:
            return
        try:
            if self._fd is None:
                self._fd = self._create()
            _write(self._fd, kind, self._clock() - self._began, payload)
        except OSError as error:
            self.error = error.strerror or str(error)
            self._shut()

    def _create(self) -> int:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        try:
            os.write(fd, MAGIC)
            _write(fd, b"H", 0.0, msgspec.json.encode(asdict(self._header)))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _shut(self) -> None:
        self._closed = True
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):
                os.close(fd)


def _write(fd: int, kind: bytes, seconds: float, payload: bytes) -> None:
    head = _FRAME.pack(kind, seconds, len(payload))
    if os.writev(fd, [head, payload]) < len(head) + len(payload):
        raise OSError("the frame did not fit")


class CapsuleReader:
    """A recording, read once from start to end: iterate, then look at what closed it.

    ``trailer`` is None and ``torn`` true where the file breaks off; ``cut`` says that the bound
    was reached, so that there was more to read than there is.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.trailer: Trailer | None = None
        self.torn = False
        self.cut = False
        if self._read(len(MAGIC)) != MAGIC:
            raise CapsuleError("this is not a capsule of a known version")
        frame = self._frame()
        if frame is None or frame[0] != b"H":
            raise CapsuleError("the capsule has no header")
        self.header = _decode(frame[2], Header)

    def __iter__(self) -> Iterator[tuple[float, bytes]]:
        """(seconds since the start, bytes of stdout)."""
        while frame := self._frame():
            kind, seconds, payload = frame
            if kind == b"D":
                yield seconds, payload
            elif kind == b"C":
                self.cut = True
            elif kind == b"T":
                with suppress(CapsuleError):
                    self.trailer = _decode(payload, Trailer)
                break
            else:
                break
        self.torn = self.trailer is None

    def _frame(self) -> tuple[bytes, float, bytes] | None:
        head = self._read(_FRAME.size)
        if len(head) < _FRAME.size:
            return None
        kind, seconds, length = _FRAME.unpack(head)
        if length > MAX_FRAME_BYTES:
            return None
        payload = self._read(length)
        return (kind, seconds, payload) if len(payload) == length else None

    def _read(self, size: int) -> bytes:
        """Up to ``size`` bytes; damage reads like an early end."""
        try:
            return self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return b""


def _decode(payload: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.MsgspecError as error:
        raise CapsuleError(f"the capsule's {kind.__name__.lower()} is damaged: {error}") from None


def compressed_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.gz")


@contextmanager
def open_capsule(path: pathlib.Path) -> Iterator[CapsuleReader]:
    """Open a recording under the path that it was written to, compressed meanwhile or not.

    Raises OSError (FileNotFoundError too) and CapsuleError.
    """
    compressed = compressed_path(path)
    with (compressed if not path.exists() and compressed.exists() else path).open("rb") as file:
        zipped = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        yield CapsuleReader(gzip.GzipFile(fileobj=file) if zipped else file)  # type: ignore[arg-type]


def compress(path: pathlib.Path) -> pathlib.Path:
    """Replace a closed recording by its gzip.  At every instant one of the two is whole.

    Takes about a second for 64 MiB: not for an event loop.  Raises OSError.
    """
    target = compressed_path(path)
    part = target.with_name(f"{target.name}.part")
    with path.open("rb") as source, open(part, "wb", opener=_private) as sink:
        with gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=6) as zipped:
            shutil.copyfileobj(source, zipped, 256 * 1024)
        sink.flush()
        os.fsync(sink.fileno())
    part.replace(target)
    path.unlink()
    return target


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
