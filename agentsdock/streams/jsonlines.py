"""Lines of JSON to typed objects: what the parsers of all CLIs share.

A CLI's vocabulary is a set of msgspec Structs told apart by their ``type``.  One strict pass
decodes a line; only a line that does not pass (a new field, terminal noise, half a surrogate
pair) is looked at again, slowly.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, NoReturn, TypeVar, Union

import msgspec
from attrs import evolve
from msgspec import Raw, Struct

from agentsdock.model.codes import Code
from agentsdock.streams.lines import LineSplitter
from agentsdock.streams.neutral import Drift, Fault, ParserSpec, StreamEvent, StreamFacts, Unusable
from agentsdock.streams.noise import (
    replace_lone_surrogates,
    strip_control_sequences,
    unusable_line,
)

S = TypeVar("S", bound=Struct)

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding bytes that a CLI wrote can raise."""

read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
"""The fields of one JSON object, each still JSON; the syntax of all of it is checked."""

_read_any = msgspec.json.Decoder().decode
_WORD_CHARS = 80
_DRIFT_NAMES = 64
_LISTED_BYTES = 1 << 20
"""Lines beyond this are not searched for new fields: their names alone could fill the memory."""


class _Head(Struct):
    type: Raw = Raw(b"null")
    subtype: Raw = Raw(b"null")


_read_head = msgspec.json.Decoder(_Head).decode


class ContractError(Exception):
    """What the CLI wrote breaks the contract; ``fault`` is what becomes of the stream."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Vocabulary(Generic[S]):
    """The lines that one CLI is known to write: Structs with ``type`` as their tag field.

    ``read`` decodes a line that holds known fields only, ``read_newer`` any line of a known
    type.  Both raise what :data:`UNREADABLE` names.
    """

    def __init__(self, *shapes: type[S]) -> None:
        self.read = _decoder(
            tuple(
                msgspec.defstruct(shape.__name__, (), bases=(shape,), forbid_unknown_fields=True)
                for shape in shapes
            )
        )
        self.read_newer = _decoder(shapes)
        self.fields = {
            str(shape.__struct_config__.tag): frozenset({"type", *shape.__struct_encode_fields__})
            for shape in shapes
        }
        """The known fields of each type."""
        self.types = frozenset(self.fields)


class JsonLineParser(ABC, Generic[S]):
    """A :class:`~agentsdock.streams.neutral.StreamParser` but for what the lines mean.

    A subclass says in :meth:`accept` what a line means, and in :meth:`flush` what is still
    held back when the stream ends or breaks.  It emits events, or raises
    :exc:`ContractError`; ``self.listening = False`` makes every later line meaningless.
    """

    vocabulary: Vocabulary[S]

    def __init__(self, spec: ParserSpec) -> None:
        self.spec = spec
        self.listening = True
        self._read = self.vocabulary.read
        self._lines = LineSplitter(spec.bounds)
        self._events: list[StreamEvent] = []
        self._ended = False
        self._control_sequences = 0
        self._cut_line_bytes = 0
        self._drifts: set[tuple[str, str]] = set()

    @abstractmethod
    def accept(self, line: S) -> None:
        """Emit what this line means."""

    @abstractmethod
    def flush(self) -> None:
        """Emit what was held back so far."""

    def emit(self, event: StreamEvent) -> None:
        self._events.append(event)

    def drift(self, kind: str, name: str) -> None:
        """Tell of something new, each name once a turn."""
        if (kind, name) in self._drifts or len(self._drifts) >= _DRIFT_NAMES:
            return
        new = (kind, word(name))
        if new not in self._drifts:
            self._drifts.add(new)
            self.emit(Drift(*new))

    def feed(self, data: bytes) -> list[StreamEvent]:
        for line in self._lines.feed(data):
            if self.listening:
                self._take(line)
        self._check_ceilings()
        return self._taken()

    def end(self) -> list[StreamEvent]:
        if not self._ended:
            self._ended = True
            self._take_rest(self._lines.end())
            self._check_ceilings()
            if self.listening:
                self.listening = False
                self.flush()
        return self._taken()

    @property
    def facts(self) -> StreamFacts:
        return StreamFacts(
            self._lines.lines, self._lines.bytes, self._control_sequences, self._cut_line_bytes
        )

    def _taken(self) -> list[StreamEvent]:
        events, self._events = self._events, []
        return events

    def _check_ceilings(self) -> None:
        if self._lines.fault is not None and self.listening:
            self._break(self._lines.fault)

    def _break(self, fault: Fault) -> None:
        self.listening = False
        self.flush()
        self.emit(fault)

    def _take(self, line: bytes) -> None:
        try:
            try:
                if not line.isascii():
                    line.decode()
                shape = self._read(line)
            except UNREADABLE:
                shape = self._read_slowly(line)
            if shape is not None:
                self.accept(shape)
        except ContractError as error:
            fault = error.fault
            if fault.line is not None:
                fault = evolve(fault, line=evolve(fault.line, size=len(line)))
            self._break(fault)

    def _take_rest(self, rest: bytes) -> None:
        if rest and _is_cut(rest):
            self._cut_line_bytes = len(rest)
        elif rest and self.listening:
            self._take(rest)

    def _read_slowly(self, line: bytes) -> S | None:
        line, dropped = strip_control_sequences(line)
        self._control_sequences += dropped
        if not line:
            return None
        line = replace_lone_surrogates(line)
        head = _object(line)
        try:
            return self._read_newer(line)
        except UNREADABLE as error:
            self._reject(head, error)

    def _read_newer(self, line: bytes) -> S:
        shape: S = self.vocabulary.read_newer(line)
        if len(line) > _LISTED_BYTES:
            return shape
        kind = str(shape.__struct_config__.tag)
        known = self.vocabulary.fields[kind]
        fields = read_fields(line)
        if not fields.keys() <= known:
            # The next lines of this build will not pass the strict way either.
            self._read = self._read_newer
            for field in fields:
                if field not in known:
                    self.drift("field", f"{kind}.{field}")
        return shape

    def _reject(self, head: _Head, error: Exception) -> NoReturn:
        kind, subtype = _text(head.type), _text(head.subtype)
        if kind in self.vocabulary.fields:
            raise schema_error(f"a field has the wrong shape: {error}", kind, subtype)
        raise schema_error("the type of this line is unknown", kind, subtype)


def schema_error(message: str, kind: str | None, subtype: str | None = None) -> ContractError:
    """``unknown_schema``, naming the type and subtype of the line that is not understood."""
    kind = None if kind is None else word(kind)
    subtype = None if subtype is None else word(subtype)
    named = "/".join(part for part in (kind, subtype) if part) or "no type"
    return ContractError(
        Fault(Code.UNKNOWN_SCHEMA, f"{named}: {message}", Unusable(0, kind, subtype))
    )


def word(text: str) -> str:
    """A name out of the stream as it may be shown: short and on one line."""
    shown = "".join(
        character if character.isprintable() else "�" for character in text[:_WORD_CHARS]
    )
    return shown if len(text) <= _WORD_CHARS else shown[:-1] + "…"


def read_value(raw: Raw) -> Any:
    """Decode one value; one that no program could use (numbers too long, nesting) stays text."""
    try:
        return _read_any(raw)
    except UNREADABLE:
        return bytes(raw).decode(errors="replace")


def _decoder(shapes: tuple[type[Struct], ...]) -> Any:
    return msgspec.json.Decoder(Union[shapes]).decode  # noqa: UP007


def _object(line: bytes) -> _Head:
    try:
        line.decode()
        return _read_head(line)
    except RecursionError:
        raise schema_error("nested too deeply", None) from None
    except UNREADABLE:
        raise ContractError(unusable_line(line)) from None


def _text(raw: Raw) -> str | None:
    value = read_value(raw)
    return value if isinstance(value, str) else None


def _is_cut(rest: bytes) -> bool:
    rest, _ = strip_control_sequences(rest)
    if not rest.startswith((b"{", b"\x1b")):
        return False
    try:
        _object(replace_lone_surrogates(rest))
    except ContractError:
        return True
    return False
