"""What an ``item`` of Codex's ``exec --json`` says: which call, with what, and how it ended.

Every release adds types of items.  A new one is shown as a call under its own name.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from attrs import frozen
from msgspec import Raw

from agentsdock.streams import bounding
from agentsdock.streams.jsonlines import UNREADABLE, read_fields, read_value, schema_error
from agentsdock.streams.neutral import Bounds, Outcome

_ID_CHARS = 240
_EXIT_CODES = range(-(1 << 31), 1 << 31)
_OWN_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*("(?:[^"\\]|\\.)*")')

_TEXTS = frozenset({"agent_message", "reasoning", "error"})
_CALLS = {
    "command_execution": frozenset({"command", "aggregated_output", "exit_code", "status"}),
    "file_change": frozenset({"changes", "status"}),
    "mcp_tool_call": frozenset({"server", "tool", "arguments", "result", "error", "status"}),
    "collab_tool_call": frozenset(
        {"tool", "sender_thread_id", "receiver_thread_ids", "prompt", "agents_states", "status"}
    ),
    "web_search": frozenset({"query", "action"}),
    "todo_list": frozenset({"items"}),
}
_OUTCOMES = {
    "completed": Outcome.OK,
    "failed": Outcome.FAILED,
    "declined": Outcome.REJECTED,
    "in_progress": None,
}
_RESULTS = frozenset({"aggregated_output", "exit_code", "result", "error", "status"})
"""Fields that tell how a call went, not what it was asked to do."""


@frozen
class Item:
    """One line's view of an item; ``fields`` are still JSON and lack ``id`` and ``type``."""

    id: str
    type: str
    fields: dict[str, Raw]

    @property
    def is_call(self) -> bool:
        return self.type not in _TEXTS

    @property
    def news(self) -> list[tuple[str, str]]:
        """Kind and name of what is new in the item, to be counted."""
        if not self.is_call:
            return []
        known = _CALLS.get(self.type)
        if known is None:
            return [("type", f"item.{self.type}")]
        return [("field", f"{self.type}.{name}") for name in self.fields if name not in known]


@frozen
class Ending:
    """How a call ended.  ``outcome`` is None while it goes on; ``label`` is the CLI's word."""

    outcome: Outcome | None
    label: str | None
    output: str
    output_chars: int
    exit_code: int | None
    known: bool


def read_item(raw: Raw, kind: str) -> Item:
    """The item of a ``kind`` line; raises ``ContractError`` without a usable id and type."""
    try:
        fields = read_fields(raw)
    except UNREADABLE:
        raise schema_error("the item is not an object", kind) from None
    told_id, item_type = fields.pop("id", None), _value(fields.pop("type", None))
    if not isinstance(item_type, str) or not item_type:
        raise schema_error("the item has no type", kind)
    # A web search names its id twice; the item's own stands first.
    own = _OWN_ID.match(raw)
    item_id = _value(Raw(own[1]) if own else told_id)
    if not isinstance(item_id, str) or not 0 < len(item_id) <= _ID_CHARS:
        raise schema_error("the item has no usable id", kind, item_type)
    return Item(item_id, item_type, fields)


def text_of(item: Item, field: str, kind: str) -> str:
    """The text that makes up the item; raises ``ContractError`` without one."""
    text = _value(item.fields.get(field))
    if not isinstance(text, str):
        raise schema_error(f"the item has no {field}", kind, item.type)
    return text


def call_name(item: Item) -> str:
    """The type of item, or the tool that it says to have called."""
    parts = [_value(item.fields.get(field)) for field in ("server", "tool")]
    named = ".".join(part for part in parts if isinstance(part, str) and part)
    return bounding.name(named if item.type.endswith("tool_call") and named else item.type)


def call_input(item: Item, bounds: Bounds) -> dict[str, Any]:
    arguments = item.fields.get("arguments")
    if item.type == "mcp_tool_call" and arguments is not None:
        return bounding.tool_input(read_value(arguments), bounds.tool_chars)
    asked = {name: read_value(raw) for name, raw in item.fields.items() if name not in _RESULTS}
    return bounding.tool_input(asked, bounds.tool_chars)


def edits(item: Item) -> tuple[str, ...]:
    """The files that a change of files names."""
    changes = _value(item.fields.get("changes")) if item.type == "file_change" else None
    told = changes if isinstance(changes, list) else []
    return bounding.paths(change.get("path") for change in told if isinstance(change, dict))


def read_ending(item: Item, limit: int) -> Ending:
    label = _value(item.fields.get("status"))
    label = label if isinstance(label, str) else None
    outcome = Outcome.OK if label is None else _OUTCOMES.get(label, Outcome.FAILED)
    exit_code = _value(item.fields.get("exit_code"))
    exit_code = exit_code if type(exit_code) is int and exit_code in _EXIT_CODES else None
    if outcome is Outcome.OK and (exit_code or _value(item.fields.get("error")) is not None):
        outcome = Outcome.FAILED
    output = _OUTPUTS.get(item.type, _as_json)(item.fields)
    return Ending(
        outcome=outcome,
        label=None if label is None else bounding.name(label),
        output=bounding.tail(output, limit),
        output_chars=len(output),
        exit_code=exit_code,
        known=label is None or label in _OUTCOMES,
    )


def _value(raw: Raw | None) -> Any:
    return None if raw is None else read_value(raw)


def _as_json(fields: dict[str, Raw]) -> str:
    return msgspec.json.encode(fields).decode(errors="replace")


def _command_output(fields: dict[str, Raw]) -> str:
    output = _value(fields.get("aggregated_output"))
    return output if isinstance(output, str) else ""


def _mcp_output(fields: dict[str, Raw]) -> str:
    """The server's error, else the texts of its answer, else the answer as it came."""
    error, result = _value(fields.get("error")), _value(fields.get("result"))
    if error is not None:
        message = error.get("message") if isinstance(error, dict) else error
        return message if isinstance(message, str) else _as_json({"error": fields["error"]})
    content = result.get("content") if isinstance(result, dict) else None
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    told = "\n".join(text for text in texts if isinstance(text, str))
    return told if told or result is None else bytes(fields["result"]).decode(errors="replace")


def _checklist(fields: dict[str, Raw]) -> str:
    items = _value(fields.get("items"))
    return "\n".join(
        f"[{'x' if item.get('completed') is True else ' '}] {item.get('text', '')}"
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict)
    )


def _query(fields: dict[str, Raw]) -> str:
    query = _value(fields.get("query"))
    return query if isinstance(query, str) else ""


_OUTPUTS: dict[str, Callable[[dict[str, Raw]], str]] = {
    "command_execution": _command_output,
    "file_change": lambda fields: "",
    "mcp_tool_call": _mcp_output,
    "todo_list": _checklist,
    "web_search": _query,
}
