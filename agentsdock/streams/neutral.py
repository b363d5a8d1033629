"""The vocabulary that every CLI's stream is translated into.

A parser is sans-IO: bytes in, these events out, at any split of the bytes the same events.
It never raises on input.  What it cannot accept becomes one :class:`Fault`, after which it
yields nothing more.
"""

from enum import StrEnum
from typing import Any, Protocol

from attrs import field, frozen

from agentsdock.model.codes import Code
from agentsdock.model.usage import Usage


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    REJECTED = "rejected"
    UNFINISHED = "unfinished"


@frozen
class Init:
    """The CLI accepted the turn under this id (a valid, bounded identifier)."""

    session_id: str
    cwd: str | None = None
    model: str | None = None


@frozen
class Text:
    """One whole assistant segment, shown once.  ``chars`` is its length before any cut."""

    text: str
    chars: int


@frozen
class Thought:
    """One whole thought (deltas are joined here, not at the client)."""

    text: str
    chars: int


@frozen
class ToolStarted:
    """``timeout_seconds`` is what the call declares for itself, if it does.

    ``edits`` are the files that an edit tool says to change, as the CLI writes their paths.
    """

    call_id: str
    name: str
    input: Any
    timeout_seconds: float | None = None
    edits: tuple[str, ...] = ()


@frozen
class ToolFinished:
    """The first completion of a call.  ``input`` and ``edits`` are set where no start told them.

    ``label`` is the CLI's own word for the outcome (``success``, ``spawnError``, ...);
    ``output_chars`` the length of the output before any cut.
    """

    call_id: str
    name: str
    input: Any
    outcome: Outcome
    label: str | None
    output: str
    exit_code: int | None
    output_chars: int | None = None
    edits: tuple[str, ...] = ()


@frozen
class QueryOpened:
    """The CLI asks; if nothing answers, a person would have to."""

    query_id: str
    kind: str


@frozen
class QueryAnswered:
    query_id: str


@frozen
class Notice:
    """A known sign of life without content for the timeline (retry, reconnect, status)."""

    kind: str


@frozen
class Result:
    """The CLI's own word on the turn.

    ``text`` is the final text of a success.  Of a failure ``message`` holds what the CLI
    said (bounded); it is never shown as a result.
    """

    is_error: bool
    text: str = ""
    message: str | None = None
    usage: Usage | None = None


@frozen
class Resumed:
    """After a result the CLI began another turn of its own accord (Claude only)."""


@frozen
class Unusable:
    """What is told of a line that could not be used: never its content if it began with ``{``."""

    size: int
    type: str | None = None
    subtype: str | None = None
    prose: str | None = None


@frozen
class Fault:
    """The stream broke its contract; ``message`` says how, for a person."""

    code: Code
    message: str
    line: Unusable | None = None


@frozen
class Drift:
    """Something new but harmless, to be counted: ``kind`` is field, type, tool or outcome."""

    kind: str
    name: str


StreamEvent = (
    Init
    | Text
    | Thought
    | ToolStarted
    | ToolFinished
    | QueryOpened
    | QueryAnswered
    | Notice
    | Result
    | Resumed
    | Fault
    | Drift
)


@frozen
class Bounds:
    """Ceilings of one turn's stream.  Sizes in bytes where they say so, else characters."""

    line_bytes: int = 32 * 1024 * 1024
    stream_lines: int = 200_000
    stream_bytes: int = 512 * 1024 * 1024
    text_chars: int = 131_072
    accumulated_text_chars: int = 262_144
    tool_calls: int = 4096
    tool_chars: int = 12_000
    thought_chars: int = 12_000


@frozen
class StreamFacts:
    """What the parser counted, whatever the ending."""

    lines: int = 0
    bytes: int = 0
    control_sequences: int = 0
    cut_line_bytes: int = 0
    """Bytes of a last line that had no end and was not whole JSON."""


class StreamParser(Protocol):
    """One CLI's stream.  ``feed`` and ``end`` never raise and never grow beyond the bounds."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Events that these bytes complete."""
        ...

    def end(self) -> list[StreamEvent]:
        """Events that the end of the stream completes; idempotent."""
        ...

    @property
    def facts(self) -> StreamFacts: ...


@frozen
class ParserSpec:
    """How the runtime makes a parser: the id asked for with resume, and the bounds."""

    resume_id: str | None = None
    bounds: Bounds = field(factory=Bounds)
