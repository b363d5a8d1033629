"""The Cursor CLI's ``stream-json`` output as neutral events."""

import re
from typing import Any

from msgspec import Raw, Struct

from agentsdock.model.codes import Code
from agentsdock.model.ids import PROVIDER_ID
from agentsdock.model.usage import Usage
from agentsdock.streams import bounding, cursor_tools
from agentsdock.streams.jsonlines import (
    ContractError,
    JsonLineParser,
    Vocabulary,
    read_value,
    schema_error,
)
from agentsdock.streams.neutral import (
    Fault,
    Init,
    Notice,
    ParserSpec,
    QueryAnswered,
    QueryOpened,
    Result,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)

_NOT_READ = Raw(b"null")
_QUERY_KIND = re.compile(r"[A-Za-z0-9_.:-]{1,80}\Z")
_QUERY_ID_CHARS = 240
_MESSAGE_CHARS = 4_000
_TOKENS = range(1 << 53)
_USAGE_NAMES = {
    "input_tokens": ("inputTokens", "input_tokens"),
    "output_tokens": ("outputTokens", "output_tokens"),
    "cache_read_tokens": ("cacheReadTokens", "cache_read_tokens", "cached_input_tokens"),
    "cache_write_tokens": ("cacheWriteTokens", "cache_write_tokens", "cache_write_input_tokens"),
}


class Line(Struct, tag_field="type", gc=False):
    """Fields that every line may have; those that nobody reads stay JSON."""

    session_id: str | None = None
    timestamp_ms: int | float | str | None = None


class System(Line, tag="system"):
    subtype: str = ""
    cwd: str | None = None
    model: str | None = None
    apiKeySource: Raw = _NOT_READ  # noqa: N815
    permissionMode: Raw = _NOT_READ  # noqa: N815
    task_id: Raw = _NOT_READ
    status: Raw = _NOT_READ
    title: Raw = _NOT_READ
    aborted_count: Raw = _NOT_READ
    timeout_ms: Raw = _NOT_READ


class User(Line, tag="user"):
    message: Raw = _NOT_READ


class Part(Struct, gc=False):
    type: str
    text: str = ""


class Message(Struct, gc=False):
    content: list[Part]


class Assistant(Line, tag="assistant", kw_only=True):
    message: Message
    model_call_id: str | None = None


class Thinking(Line, tag="thinking"):
    subtype: str = ""
    text: str = ""
    model_call_id: Raw = _NOT_READ


class ToolCall(Line, tag="tool_call", kw_only=True):
    subtype: str = ""
    call_id: Any = None
    tool_call: cursor_tools.Envelope
    model_call_id: Raw = _NOT_READ


class Query(Line, tag="interaction_query"):
    subtype: str = ""
    query_type: Any = None
    query: dict[str, Raw] = {}
    response: dict[str, Raw] = {}


class Connection(Line, tag="connection"):
    subtype: str = ""
    attempt: Raw = _NOT_READ
    endpoint_url: Raw = _NOT_READ


class Retry(Line, tag="retry"):
    subtype: str = ""
    attempt: Raw = _NOT_READ
    is_resume: Raw = _NOT_READ


class Final(Line, tag="result", kw_only=True):
    subtype: str = ""
    is_error: bool
    result: str | None = None
    usage: Raw = _NOT_READ
    duration_ms: Raw = _NOT_READ
    duration_api_ms: Raw = _NOT_READ
    request_id: Raw = _NOT_READ


_SIGNS_OF_LIFE = {
    "system": frozenset({"init", "task_notification", "background_shell_timeout"}),
    "connection": frozenset({"reconnecting", "reconnected"}),
    "retry": frozenset({"starting", "resuming"}),
}


class CursorParser(JsonLineParser[Line]):
    """One turn's stream.  The first result ends it: later lines are counted and mean nothing."""

    vocabulary = Vocabulary(
        System, User, Assistant, Thinking, ToolCall, Query, Connection, Retry, Final
    )

    def __init__(self, spec: ParserSpec | None = None) -> None:
        spec = spec or ParserSpec()
        super().__init__(spec)
        self._session: str | None = None
        self._calls: dict[str, bool] = {}
        """Whether each call that was seen has finished."""
        self._thought = bounding.Joiner(spec.bounds.thought_chars)
        self._deltas = bounding.Joiner(spec.bounds.text_chars)
        self._said = bounding.Joiner(spec.bounds.accumulated_text_chars)

    def accept(self, line: Line) -> None:
        if self._session is None:
            self._accept_init(line)
            return
        if line.session_id and line.session_id != self._session:
            raise ContractError(
                Fault(Code.SESSION_MISMATCH, "a line carries another session id than the init")
            )
        match line:
            case Assistant():
                self._accept_assistant(line)
            case ToolCall():
                self._accept_tool_call(line)
            case Thinking():
                self._accept_thinking(line)
            case Query():
                self._accept_query(line)
            case Final():
                self._accept_result(line)
            case System() | Connection() | Retry():
                self._accept_sign_of_life(line)

    def flush(self) -> None:
        self._flush_thought()
        self._flush_deltas()

    def _accept_init(self, line: Line) -> None:
        if not isinstance(line, System) or line.subtype != "init":
            raise ContractError(
                Fault(Code.MISSING_INIT, f"a {_tag(line)} line came before the session's init")
            )
        if line.session_id is None or not PROVIDER_ID.match(line.session_id):
            raise schema_error("the session id is not a usable identifier", "system", "init")
        if self.spec.resume_id not in (None, line.session_id):
            raise ContractError(
                Fault(Code.SESSION_MISMATCH, "the CLI answered a resume with another session")
            )
        self._session = line.session_id
        self.emit(Init(line.session_id, line.cwd, line.model))

    def _accept_assistant(self, line: Assistant) -> None:
        text = self._message_text(line.message.content)
        if not text:
            return
        if self._thought.chars:
            self._flush_thought()
        if line.timestamp_ms is not None and line.model_call_id is None:
            self._deltas.add(text)
            return
        if self._deltas.chars:
            self._deltas.clear()
        self._said.add(text)
        self.emit(Text(bounding.head(text, self.spec.bounds.text_chars), len(text)))

    def _message_text(self, parts: list[Part]) -> str:
        if len(parts) == 1 and parts[0].type == "text":
            return parts[0].text
        for part in parts:
            if part.type != "text":
                self.drift("type", f"assistant.{part.type}")
        return "".join(part.text for part in parts if part.type == "text")

    def _accept_thinking(self, line: Thinking) -> None:
        if line.subtype == "delta":
            self._thought.add(line.text)
        elif line.subtype == "completed":
            self._flush_thought()
        else:
            raise _unknown_subtype(line, line.subtype)

    def _accept_tool_call(self, line: ToolCall) -> None:
        if line.subtype not in ("started", "completed"):
            raise _unknown_subtype(line, line.subtype)
        call = cursor_tools.read_call(line.tool_call)
        call_id = cursor_tools.call_id(line.call_id, call)
        for kind, name in call.news:
            self.drift(kind, name)
        started = call_id in self._calls
        if not started:
            self._open_call(call_id)
        if line.subtype == "completed" and not self._calls[call_id]:
            self._complete(call_id, call, started)
        elif not started:
            self._start(call_id, call)

    def _open_call(self, call_id: str) -> None:
        limit = self.spec.bounds.tool_calls
        if len(self._calls) >= limit:
            raise ContractError(Fault(Code.TOOL_LIMIT, f"more than {limit} tool calls in one turn"))
        self.flush()
        self._calls[call_id] = False

    def _start(self, call_id: str, call: cursor_tools.Call) -> None:
        asked = cursor_tools.read_input(call, self.spec.bounds)
        self.emit(ToolStarted(call_id, call.name, asked.shown, asked.timeout, asked.edits))

    def _complete(self, call_id: str, call: cursor_tools.Call, started: bool) -> None:
        ending = cursor_tools.read_ending(call.result, self.spec.bounds.tool_chars)
        if not ending.known and ending.label:
            self.drift("outcome", ending.label)
        if ending.outcome is None:
            if not started:
                self._start(call_id, call)
            return
        self._calls[call_id] = True
        asked = None if started else cursor_tools.read_input(call, self.spec.bounds)
        self.emit(
            ToolFinished(
                call_id,
                call.name,
                asked and asked.shown,
                ending.outcome,
                ending.label,
                ending.output,
                ending.exit_code,
                ending.output_chars,
                asked.edits if asked else (),
            )
        )
        if ending.label == cursor_tools.NEEDS_CONFIRMATION:
            raise ContractError(
                Fault(Code.APPROVAL_REQUIRED, f"the tool {call.name} waits for a confirmation")
            )

    def _accept_query(self, line: Query) -> None:
        if line.subtype == "request":
            self.emit(QueryOpened(_query_id(line, line.query), _query_kind(line.query_type)))
        elif line.subtype == "response":
            self.emit(QueryAnswered(_query_id(line, line.response)))
        else:
            raise _unknown_subtype(line, line.subtype)

    def _accept_sign_of_life(self, line: System | Connection | Retry) -> None:
        if line.subtype not in _SIGNS_OF_LIFE[_tag(line)]:
            raise _unknown_subtype(line, line.subtype)
        if line.subtype != "init":
            self.emit(Notice(f"{_tag(line)}/{line.subtype}"))

    def _accept_result(self, line: Final) -> None:
        if line.subtype not in ("success", "error"):
            raise _unknown_subtype(line, line.subtype)
        failed = line.is_error or line.subtype == "error"
        if line.result is None and not failed:
            raise schema_error("a success without its text", "result", "success")
        self.flush()
        self.listening = False
        usage = _usage(line.usage)
        if failed:
            message = bounding.head(line.result or "", _MESSAGE_CHARS)
            self.emit(Result(is_error=True, message=message or None, usage=usage))
        else:
            limit = self.spec.bounds.accumulated_text_chars
            text = bounding.head(line.result, limit) if line.result else self._said.text()
            self.emit(Result(is_error=False, text=text, usage=usage))

    def _flush_thought(self) -> None:
        if self._thought.chars:
            self.emit(Thought(self._thought.text(), self._thought.chars))
            self._thought.clear()

    def _flush_deltas(self) -> None:
        if self._deltas.chars:
            text, chars = self._deltas.text(), self._deltas.chars
            self._deltas.clear()
            self._said.add(text)
            self.emit(Text(text, chars))


def _tag(line: Line) -> str:
    return str(line.__struct_config__.tag)


def _unknown_subtype(line: Line, subtype: str) -> ContractError:
    return schema_error("the subtype of this line is unknown", _tag(line), subtype)


def _query_id(line: Query, fields: dict[str, Raw]) -> str:
    value = read_value(fields["id"]) if "id" in fields else None
    if isinstance(value, str | int) and 0 < len(str(value)) <= _QUERY_ID_CHARS:
        return str(value)
    raise schema_error("no usable query id", _tag(line), line.subtype)


def _query_kind(told: Any) -> str:
    return told if isinstance(told, str) and _QUERY_KIND.match(told) else "unknown"


def _usage(raw: Raw) -> Usage | None:
    told = read_value(raw)
    if not isinstance(told, dict):
        return None
    counts = {
        ours: next((told[name] for name in names if _is_count(told.get(name))), None)
        for ours, names in _USAGE_NAMES.items()
    }
    return Usage(**counts) if any(count is not None for count in counts.values()) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value in _TOKENS
