"""Claude Code's ``--output-format stream-json`` in print mode as neutral events.

One process may hold several turns of one session, each with an init and a result: work in the
background wakes the model again, and its init may even come before the result of the turn
before.  So a result ends nothing here, and only an init counts as new work.
"""

import math
import re
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from agentsdock.model.codes import Code
from agentsdock.model.ids import PROVIDER_ID
from agentsdock.model.usage import Usage
from agentsdock.streams import bounding
from agentsdock.streams.claude_lines import (
    KNOWN_SUBTYPES,
    VOCABULARY,
    Assistant,
    Block,
    ControlCancel,
    ControlRequest,
    ControlResponse,
    Final,
    Line,
    SignOfLife,
    StreamEvent,
    System,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    User,
)
from agentsdock.streams.jsonlines import (
    UNREADABLE,
    ContractError,
    JsonLineParser,
    read_value,
    schema_error,
    word,
)
from agentsdock.streams.neutral import (
    Fault,
    Init,
    Notice,
    Outcome,
    ParserSpec,
    QueryAnswered,
    QueryOpened,
    Result,
    Resumed,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)

B = TypeVar("B", bound=Struct)

_ID_CHARS = 240
_MESSAGE_CHARS = 4_000
_SYNTHETIC = "<synthetic>"
_PROMPT_BLOCKS = frozenset({"text", "image", "document"})
_TOKENS = range(1 << 53)
_EDITS = {
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "Write": "file_path",
}
"""Tools that change a file, and where they name it."""
_USAGE_NAMES = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
_EXIT_CODE = re.compile(r"Exit code (\d{1,9})(?:\n|\Z)")
_REFUSAL = re.compile(r"Claude requested permissions? to |Permission (?:to|for) .{1,300} denied")
"""How 2.1.197, which has no ``permission_denied`` line, words a refusal."""


class ClaudeParser(JsonLineParser[Line]):
    """One process's stream.  Between a result and the next init, lines mean nothing."""

    vocabulary = VOCABULARY

    def __init__(self, spec: ParserSpec | None = None) -> None:
        spec = spec or ParserSpec()
        super().__init__(spec)
        self._session: str | None = None
        self._working = 0
        """Inits whose result has not come yet."""
        self._has_result = False
        self._calls: dict[str, str | None] = {}
        """The name of each open call, None of each finished one."""
        self._refused: set[str] = set()
        self._asked: dict[str, str] = {}
        """The question about each call that waits for its answer."""
        self._deltas = bounding.Joiner(spec.bounds.text_chars)

    @property
    def _resting(self) -> bool:
        return self._has_result and self._working == 0

    def accept(self, line: Line) -> None:
        if self._session is not None and line.session_id not in (None, self._session):
            raise ContractError(
                Fault(Code.SESSION_MISMATCH, "a line carries another session id than the init")
            )
        match line:
            case System():
                self._accept_system(line)
            case ControlRequest():
                self._accept_question(line)
            case ControlCancel():
                self.emit(QueryAnswered(_bounded_id(line.request_id, line)))
            case ControlResponse():
                self.emit(QueryAnswered(_bounded_id(line.response.request_id, line)))
            case Final():
                self._accept_result(line)
            case SignOfLife():
                self.emit(Notice(_tag(line)))
            case _ if self._resting:
                self.emit(Notice(_tag(line)))
            case _ if self._session is None:
                raise _too_early(line)
            case Assistant():
                self._accept_assistant(line)
            case User():
                self._accept_user(line)
            case StreamEvent():
                self._accept_stream_event(line)

    def flush(self) -> None:
        """Tell what was only ever streamed: its message never came whole."""
        if self._deltas.chars:
            self.emit(Text(self._deltas.text(), self._deltas.chars))
            self._deltas.clear()

    def _break(self, fault: Fault) -> None:
        if not self._resting:
            super()._break(fault)

    def _accept_system(self, line: System) -> None:
        if line.subtype == "init":
            self._accept_init(line)
            return
        if line.subtype == "permission_denied" and self._calls.get(line.tool_use_id or ""):
            self._refused.add(line.tool_use_id or "")
        if line.subtype not in KNOWN_SUBTYPES:
            self.drift("type", f"system.{line.subtype}")
        self.emit(Notice(f"system/{word(line.subtype)}"))

    def _accept_init(self, line: System) -> None:
        self._resume()
        if self._session is None:
            if line.session_id is None or not PROVIDER_ID.match(line.session_id):
                raise schema_error("the session id is not a usable identifier", "system", "init")
            if self.spec.resume_id not in (None, line.session_id):
                raise ContractError(
                    Fault(Code.SESSION_MISMATCH, "the CLI answered a resume with another session")
                )
            self._session = line.session_id
            self.emit(Init(line.session_id, line.cwd, line.model))
        self._working += 1

    def _resume(self) -> None:
        if self._resting:
            self.emit(Resumed())

    def _accept_question(self, line: ControlRequest) -> None:
        query_id, call_id = _bounded_id(line.request_id, line), line.request.tool_use_id
        if call_id and self._calls.get(call_id):
            self._asked[call_id] = query_id
        self.emit(QueryOpened(query_id, word(line.request.subtype)))

    def _accept_assistant(self, line: Assistant) -> None:
        content = line.message.content
        blocks = [] if isinstance(content, str) else [(_kind(raw), raw) for raw in content]
        if _is_api_failure(line):
            self.flush()
            for kind, raw in blocks:
                if kind == "text":
                    self._deltas.add(_read(TextBlock, raw).text)
            return
        if line.parent_tool_use_id is None:
            self._deltas.clear()
        if isinstance(content, str):
            self._say(content, line)
        for kind, raw in blocks:
            self._accept_block(kind, raw, line)

    def _accept_block(self, kind: str, raw: Raw, line: Assistant) -> None:
        """One block of a message; tools that the API runs itself have a prefix to their kind."""
        if kind == "text":
            self._say(_read(TextBlock, raw).text, line)
        elif kind == "thinking":
            self._think(_read(ThinkingBlock, raw).thinking)
        elif kind.endswith("tool_use"):
            self._start(_read(ToolUse, raw))
        elif kind.endswith("tool_result"):
            self._finish(_read(ToolResult, raw))
        else:
            if kind != "redacted_thinking":
                self.drift("type", f"assistant.{kind}")
            self.emit(Notice(f"assistant/{word(kind)}"))

    def _say(self, text: str, line: Assistant) -> None:
        """What a subagent says is work on the way to the answer and no part of it: a thought."""
        if line.parent_tool_use_id is not None:
            self._think(text)
        elif text:
            self.emit(Text(bounding.head(text, self.spec.bounds.text_chars), len(text)))

    def _think(self, text: str) -> None:
        if text:
            self.emit(Thought(bounding.head(text, self.spec.bounds.thought_chars), len(text)))

    def _accept_user(self, line: User) -> None:
        """Tool results; the rest are prompts, ours or of the CLI's own making."""
        content = line.message.content
        for raw in [] if isinstance(content, str) else content:
            kind = _kind(raw)
            if kind.endswith("tool_result"):
                self._finish(_read(ToolResult, raw))
            elif kind not in _PROMPT_BLOCKS:
                self.drift("type", f"user.{kind}")

    def _accept_stream_event(self, line: StreamEvent) -> None:
        """Text is held until its message comes whole; a new message means that it never will."""
        event = line.event
        if line.parent_tool_use_id is not None:
            return
        if event.type == "message_start":
            self._deltas.clear()
        elif event.delta is not None and event.delta.type == "text_delta" and event.delta.text:
            self._deltas.add(event.delta.text)

    def _start(self, use: ToolUse) -> None:
        call_id = _bounded_id(use.id)
        if call_id in self._calls:
            return
        name = bounding.name(use.name) or "tool"
        self._open_call(call_id, name)
        given = read_value(use.input)
        shown = bounding.tool_input(given, self.spec.bounds.tool_chars)
        timeout = _timeout_seconds(name, given)
        self.emit(ToolStarted(call_id, name, shown, timeout, _edits(name, given)))

    def _open_call(self, call_id: str, name: str) -> None:
        limit = self.spec.bounds.tool_calls
        if len(self._calls) >= limit:
            raise ContractError(Fault(Code.TOOL_LIMIT, f"more than {limit} tool calls in one turn"))
        self._calls[call_id] = name

    def _finish(self, result: ToolResult) -> None:
        call_id = _bounded_id(result.tool_use_id)
        if call_id not in self._calls:
            self._open_call(call_id, "tool")
        output = _output(read_value(result.content))
        code = _EXIT_CODE.match(output) if result.is_error else None
        outcome, label = Outcome.OK, None
        if call_id in self._refused or (result.is_error and _REFUSAL.match(output)):
            outcome, label = Outcome.REJECTED, "permission_denied"
        elif result.is_error:
            outcome, label = Outcome.FAILED, "error"
        self._close_call(call_id, outcome, label, output, int(code[1]) if code else None)

    def _close_call(
        self,
        call_id: str,
        outcome: Outcome,
        label: str | None,
        output: str = "",
        exit_code: int | None = None,
    ) -> None:
        name = self._calls[call_id]
        if name is None:
            return
        self._calls[call_id] = None
        self._refused.discard(call_id)
        if call_id in self._asked:
            self.emit(QueryAnswered(self._asked.pop(call_id)))
        kept = bounding.tail(output, self.spec.bounds.tool_chars)
        self.emit(ToolFinished(call_id, name, None, outcome, label, kept, exit_code, len(output)))

    def _accept_result(self, line: Final) -> None:
        failed = line.is_error or line.subtype.startswith("error")
        if self._session is None and not failed:
            raise _too_early(line)
        if line.result is None and not failed:
            raise schema_error("a success without its text", "result", line.subtype)
        if not failed and line.subtype != "success":
            self.drift("type", f"result.{line.subtype}")
        self._resume()
        self._close_refused(read_value(line.permission_denials))
        # An API failure is worded twice, as a message and here; once is enough.
        if failed and self._deltas.text() == line.result:
            self._deltas.clear()
        self.flush()
        self._has_result = True
        self._working = max(self._working - 1, 0)
        self.emit(self._result(line, failed))
        if self._working:
            self.emit(Resumed())

    def _close_refused(self, denials: Any) -> None:
        for denial in denials if isinstance(denials, list) else []:
            call_id = denial.get("tool_use_id") if isinstance(denial, dict) else None
            if isinstance(call_id, str) and self._calls.get(call_id):
                self._close_call(call_id, Outcome.REJECTED, "permission_denied")

    def _result(self, line: Final, failed: bool) -> Result:
        usage = _usage(line)
        if not failed:
            limit = self.spec.bounds.accumulated_text_chars
            return Result(False, text=bounding.head(line.result or "", limit), usage=usage)
        errors = read_value(line.errors)
        told = line.result or "; ".join(map(str, errors if isinstance(errors, list) else []))
        message = bounding.head(told or line.subtype, _MESSAGE_CHARS)
        return Result(True, message=message or None, usage=usage)


def _tag(line: Line) -> str:
    return str(line.__struct_config__.tag)


def _too_early(line: Line) -> ContractError:
    return ContractError(
        Fault(Code.MISSING_INIT, f"a {_tag(line)} line came before the session's init")
    )


def _bounded_id(told: str, line: Line | None = None) -> str:
    if 0 < len(told) <= _ID_CHARS:
        return told
    raise schema_error("no usable id", "tool call" if line is None else _tag(line))


def _read(shape: type[B], raw: Raw) -> B:
    try:
        return msgspec.json.decode(raw, type=shape)
    except UNREADABLE as error:
        raise schema_error(f"a block has the wrong shape: {error}", "content") from None


def _kind(raw: Raw) -> str:
    return _read(Block, raw).type


def _is_api_failure(line: Assistant) -> bool:
    """The CLI's own words on an error of the API, in the shape of a message of the model."""
    return read_value(line.message.model) == _SYNTHETIC and (
        read_value(line.error) is not None or line.is_api_error_message is True
    )


def _edits(name: str, given: Any) -> tuple[str, ...]:
    field = _EDITS.get(name)
    return bounding.paths([given.get(field)]) if field and isinstance(given, dict) else ()


def _timeout_seconds(name: str, given: Any) -> float | None:
    """What a shell call declares for itself (in milliseconds)."""
    value = given.get("timeout") if name == "Bash" and isinstance(given, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return value / 1000


def _output(content: Any) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        return msgspec.json.encode(content).decode()
    return "\n".join(map(_part, content))


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'data')}]"


def _usage(line: Final) -> Usage | None:
    told = read_value(line.usage)
    told = told if isinstance(told, dict) else {}
    counts = {
        ours: count
        for ours, theirs in _USAGE_NAMES.items()
        if type(count := told.get(theirs)) is int and count in _TOKENS
    }
    cost = read_value(line.total_cost_usd)
    known = type(cost) in (int, float) and 0 <= cost < math.inf
    if not counts and not known:
        return None
    return Usage(**counts, cost_usd=float(cost) if known else None)
