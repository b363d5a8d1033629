"""Judge a recorded stream as the server would have, without a process or a server."""

import os
import pathlib
from collections.abc import Iterator

from agentsdock.turns.judge import Judgement, judge

READ_BYTES = 64 * 1024


def replay(
    stream: str | os.PathLike[str] | bytes,
    *,
    backend: str = "cursor",
    exit_status: int | None = None,
    stderr: str = "",
    resume_id: str | None = None,
    chunk: int | None = None,
) -> Judgement:
    """Timeline and verdict of a recording: a file with the CLI's stdout, or the bytes.

    ``exit_status`` is ``-N`` for a death by signal N; None leaves the CLI open after its last
    byte, and the limit that would end it does so at once.  ``chunk`` is how many bytes arrive
    at a time.  Raises OSError for a file that cannot be read.
    """
    data = stream if isinstance(stream, bytes) else pieces(pathlib.Path(stream))
    return judge(
        backend, data, exit_status=exit_status, stderr=stderr, resume_id=resume_id, chunk=chunk
    )


def judge_recording(
    path: pathlib.Path,
    *,
    backend: str | None = None,
    exit_status: int | None = None,
    stderr: str | None = None,
    resume_id: str | None = None,
    chunk: int | None = None,
) -> Judgement:
    """Like :func:`replay`, of a file alone."""
    return judge(
        backend or "cursor",
        pieces(path),
        exit_status=exit_status,
        stderr=stderr or "",
        resume_id=resume_id,
        chunk=chunk,
    )


def pieces(path: pathlib.Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            yield piece
