"""The Codex CLI's ``exec --json`` output as neutral events."""

from msgspec import Raw, Struct

from agentsdock.model.codes import Code
from agentsdock.model.ids import PROVIDER_ID
from agentsdock.model.usage import Usage
from agentsdock.streams import bounding, codex_items
from agentsdock.streams.codex_items import Item
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
    Result,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)

_MESSAGE_CHARS = 4_000
_TOKENS = range(1 << 53)
_USAGE_NAMES = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cached_input_tokens",
    "cache_write_tokens": "cache_write_input_tokens",
}


class Line(Struct, tag_field="type"):
    pass


class ThreadStarted(Line, tag="thread.started"):
    thread_id: str


class TurnStarted(Line, tag="turn.started"):
    pass


class ItemStarted(Line, tag="item.started"):
    item: Raw


class ItemUpdated(Line, tag="item.updated"):
    item: Raw


class ItemCompleted(Line, tag="item.completed"):
    item: Raw


class Error(Line, tag="error"):
    message: str


class TurnCompleted(Line, tag="turn.completed"):
    usage: Raw = Raw(b"null")


class Failure(Struct):
    message: str


class TurnFailed(Line, tag="turn.failed"):
    error: Failure


class CodexParser(JsonLineParser[Line]):
    """One turn's stream.  The turn's end ends it: later lines are counted and mean nothing."""

    vocabulary = Vocabulary[Line](
        ThreadStarted,
        TurnStarted,
        ItemStarted,
        ItemUpdated,
        ItemCompleted,
        Error,
        TurnCompleted,
        TurnFailed,
    )

    def __init__(self, spec: ParserSpec | None = None) -> None:
        super().__init__(spec or ParserSpec())
        self._thread: str | None = None
        self._calls: dict[str, bool] = {}
        """Whether each call that was seen has finished."""
        self._last_message = ""
        self._last_error = ""

    def accept(self, line: Line) -> None:
        match line:
            case Error():
                self._accept_error(line.message)
            case ThreadStarted():
                self._accept_thread(line.thread_id)
            case _ if self._thread is None:
                raise ContractError(
                    Fault(Code.MISSING_INIT, f"a {_tag(line)} line came before the thread's start")
                )
            case ItemStarted() | ItemUpdated() | ItemCompleted():
                self._accept_item(line)
            case TurnCompleted():
                self._end(Result(False, text=self._last_message, usage=_usage(line.usage)))
            case TurnFailed():
                told = line.error.message or self._last_error
                message = bounding.head(told, _MESSAGE_CHARS)
                self._end(Result(True, message=message or None))
            case _:
                self.emit(Notice(_tag(line)))

    def flush(self) -> None:
        """Nothing is held back: ``exec`` writes whole messages."""

    def _accept_thread(self, thread_id: str) -> None:
        if not PROVIDER_ID.match(thread_id):
            raise schema_error("the thread id is not a usable identifier", "thread.started")
        if self._thread is None and self.spec.resume_id not in (None, thread_id):
            raise ContractError(
                Fault(Code.SESSION_MISMATCH, "the CLI answered a resume with another thread")
            )
        if self._thread not in (None, thread_id):
            raise ContractError(
                Fault(Code.SESSION_MISMATCH, "a second thread was started in one turn")
            )
        if self._thread is None:
            self._thread = thread_id
            self.emit(Init(thread_id))

    def _accept_error(self, message: str) -> None:
        """Reconnects and warnings come this way in good turns too, so it decides nothing."""
        self._last_error = message[:_MESSAGE_CHARS]
        self.emit(Notice("error"))

    def _accept_item(self, line: ItemStarted | ItemUpdated | ItemCompleted) -> None:
        item = codex_items.read_item(line.item, _tag(line))
        for kind, name in item.news:
            self.drift(kind, name)
        if item.is_call:
            self._accept_call(item, isinstance(line, ItemCompleted))
        elif isinstance(line, ItemCompleted):
            self._accept_text(item)
        else:
            self.emit(Notice(f"{_tag(line)}/{item.type}"))

    def _accept_text(self, item: Item) -> None:
        if item.type == "error":
            self.emit(Notice("item/error"))
            return
        text = codex_items.text_of(item, "text", "item.completed")
        bounds = self.spec.bounds
        if item.type == "agent_message":
            self._last_message = bounding.head(text, bounds.accumulated_text_chars)
            if text:
                self.emit(Text(bounding.head(text, bounds.text_chars), len(text)))
        elif text:
            self.emit(Thought(bounding.head(text, bounds.thought_chars), len(text)))

    def _accept_call(self, item: Item, completed: bool) -> None:
        seen = item.id in self._calls
        if not seen:
            self._open_call(item.id)
        if completed and not self._calls[item.id]:
            self._complete(item, seen)
        elif not seen:
            self._start(item)

    def _open_call(self, call_id: str) -> None:
        limit = self.spec.bounds.tool_calls
        if len(self._calls) >= limit:
            raise ContractError(Fault(Code.TOOL_LIMIT, f"more than {limit} tool calls in one turn"))
        self._calls[call_id] = False

    def _start(self, item: Item) -> None:
        self.emit(
            ToolStarted(
                item.id,
                codex_items.call_name(item),
                codex_items.call_input(item, self.spec.bounds),
                edits=codex_items.edits(item),
            )
        )

    def _complete(self, item: Item, started: bool) -> None:
        ending = codex_items.read_ending(item, self.spec.bounds.tool_chars)
        if not ending.known and ending.label:
            self.drift("outcome", ending.label)
        if ending.outcome is None:
            if not started:
                self._start(item)
            return
        self._calls[item.id] = True
        self.emit(
            ToolFinished(
                item.id,
                codex_items.call_name(item),
                codex_items.call_input(item, self.spec.bounds),
                ending.outcome,
                ending.label,
                ending.output,
                ending.exit_code,
                ending.output_chars,
                codex_items.edits(item),
            )
        )

    def _end(self, result: Result) -> None:
        self.listening = False
        self.emit(result)


def _tag(line: Line) -> str:
    return str(line.__struct_config__.tag)


def _usage(raw: Raw) -> Usage | None:
    told = read_value(raw)
    if not isinstance(told, dict):
        return None
    counts = {
        ours: count
        for ours, theirs in _USAGE_NAMES.items()
        if type(count := told.get(theirs)) is int and count in _TOKENS
    }
    if "input_tokens" in counts and "cache_read_tokens" in counts:
        # The cached part is counted in both.
        counts["input_tokens"] = max(0, counts["input_tokens"] - counts["cache_read_tokens"])
    return Usage(**counts) if counts else None
