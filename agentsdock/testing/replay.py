"""Judge a recorded stream as the server would have, without a process or a server."""

import json
import os
import pathlib
from collections.abc import Iterator

import cattrs
from attrs import asdict, evolve, frozen

from agentsdock.model.codes import Code
from agentsdock.model.convert import converter
from agentsdock.turns.capsule import MAGIC, CapsuleError, CapsuleReader, open_capsule
from agentsdock.turns.judge import Judgement, judge

READ_BYTES = 64 * 1024
FACTS_KEY = "agentsdock_fixture"
"""In ``NAME.json`` beside a fixture's ``NAME.jsonl``: the version of its form."""
GZIP_MAGIC = b"\x1f\x8b"


@frozen
class Recording:
    """A file with a CLI's stdout, and what is known of how it came about.

    ``exit_status`` is ``-N`` for a death by signal N, None where the CLI never left by itself;
    ``ended_by`` is then what ended it.  ``note`` says what the recording lacks.
    """

    path: pathlib.Path
    capsule: bool = False
    backend: str = "cursor"
    exit_status: int | None = None
    ended_by: Code | None = None
    stderr: str = ""
    resume_id: str | None = None
    note: str | None = None

    def override(
        self,
        *,
        backend: str | None = None,
        exit_status: int | None = None,
        stderr: str | None = None,
        resume_id: str | None = None,
    ) -> "Recording":
        """With what is not None.  An exit status replaces what ended the CLI from outside."""
        return evolve(
            self,
            backend=self.backend if backend is None else backend,
            exit_status=self.exit_status if exit_status is None else exit_status,
            ended_by=self.ended_by if exit_status is None else None,
            stderr=self.stderr if stderr is None else stderr,
            resume_id=self.resume_id if resume_id is None else resume_id,
        )

    def judge(self, *, chunk: int | None = None) -> Judgement:
        """``chunk`` is how many bytes arrive at a time.  Raises OSError, CapsuleError."""
        return judge(
            self.backend,
            _recorded(self.path) if self.capsule else _pieces(self.path),
            exit_status=self.exit_status,
            ended_by=self.ended_by,
            stderr=self.stderr,
            resume_id=self.resume_id,
            chunk=chunk,
        )


def read_recording(path: pathlib.Path) -> Recording:
    """What a file tells of itself: a capsule much, a fixture what lies beside it, a bare stream
    nothing.

    Raises OSError, CapsuleError.
    """
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
    if head != MAGIC and not head.startswith(GZIP_MAGIC):
        return _with_facts(path)
    with open_capsule(path) as capsule:
        for _ in capsule:  # how it ended stands at its end
            pass
        return _known(path, capsule)


def replay(
    stream: str | os.PathLike[str] | bytes,
    *,
    backend: str | None = None,
    exit_status: int | None = None,
    stderr: str | None = None,
    resume_id: str | None = None,
    chunk: int | None = None,
) -> Judgement:
    """Timeline and verdict of a recording: a capsule, a file with the CLI's stdout, or bytes.

    ``backend`` is ``cursor`` unless a capsule knows better.  ``exit_status`` is ``-N`` for a
    death by signal N; None leaves the CLI open after its last byte, and the limit that would
    end it does so at once.  Raises OSError or CapsuleError for a file that cannot be read.
    """
    if isinstance(stream, bytes):
        return judge(
            backend or "cursor",
            stream,
            exit_status=exit_status,
            stderr=stderr or "",
            resume_id=resume_id,
            chunk=chunk,
        )
    recording = read_recording(pathlib.Path(stream)).override(
        backend=backend, exit_status=exit_status, stderr=stderr, resume_id=resume_id
    )
    return recording.judge(chunk=chunk)


def _known(path: pathlib.Path, capsule: CapsuleReader) -> Recording:
    header, trailer = capsule.header, capsule.trailer
    found = Recording(path, True, header.backend, resume_id=header.resume_id)
    if trailer is None:
        return evolve(found, note="The recording breaks off: the server died before the run.")
    cut = f"The recording was cut: {trailer.cut_bytes} more bytes came." if capsule.cut else None
    found = evolve(found, stderr=trailer.stderr_tail, note=cut)
    if trailer.killed or trailer.exit_code is None:
        return evolve(found, ended_by=trailer.code)
    return evolve(found, exit_status=trailer.exit_code)


@frozen
class _Facts:
    backend: str
    exit_status: int | None
    ended_by: Code | None
    stderr: str
    resume_id: str | None


def _with_facts(path: pathlib.Path) -> Recording:
    """A stream, and what ``export-fixture`` wrote down beside it."""
    try:
        facts = json.loads(path.with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return Recording(path)
    if path.suffix != ".jsonl" or not isinstance(facts, dict) or FACTS_KEY not in facts:
        return Recording(path)
    try:
        known = converter.structure(facts, _Facts)
    except cattrs.BaseValidationError as error:
        told = "; ".join(cattrs.transform_error(error))
        raise CapsuleError(f"{path.with_suffix('.json').name} is damaged: {told}") from error
    return Recording(path, False, **asdict(known))


def _recorded(path: pathlib.Path) -> Iterator[bytes]:
    with open_capsule(path) as capsule:
        for _, data in capsule:
            yield data


def _pieces(path: pathlib.Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            yield piece
