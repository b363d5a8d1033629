"""What a ``tool_call`` line of the Cursor CLI says: which tool, with what, and how it ended.

The kind of tool and the name of the outcome are data: new ones are shown, never refused.
"""

from typing import Any

import msgspec
from attrs import frozen
from msgspec import Raw

from agentsdock.streams import bounding
from agentsdock.streams.jsonlines import UNREADABLE, read_fields, read_value, schema_error
from agentsdock.streams.neutral import Bounds, Outcome

_KIND_SUFFIX = "ToolCall"
_FUNCTION = "function"
_CALL_ID_CHARS = 240
_EXIT_CODES = range(-(1 << 31), 1 << 31)

_KINDS = frozenset(
    {
        "applyAgentDiff",
        "askQuestion",
        "await",
        "createPlan",
        "delete",
        "edit",
        "getMcpTools",
        "glob",
        "grep",
        "listMcpResources",
        "ls",
        "mcp",
        "read",
        "readLints",
        "readMcpResource",
        "readTodos",
        "semSearch",
        "shell",
        "switchMode",
        "task",
        "todo",
        "updateTodos",
        "webFetch",
        "webSearch",
        "write",
        "writeShellStdin",
    }
)
_SIBLINGS = frozenset({"toolCallId", "hookAdditionalContexts", "startedAtMs", "completedAtMs"})

NEEDS_CONFIRMATION = "needsConfirmation"
_OK = frozenset(
    {"success", "complete", "registered", "startSuccess", "saveSuccess", "discardSuccess"}
)
_OPEN = frozenset({"approved", "async", "stillRunning"})
_REJECTED = frozenset({"rejected", "permissionDenied"})
_FAILED = frozenset(
    {
        "failure",
        "error",
        "timeout",
        "spawnError",
        "readPermissionDenied",
        "writePermissionDenied",
        "fileNotFound",
        "invalidFile",
        "notFile",
        "fileBusy",
        "noSpace",
        "sandboxUnsupported",
        "notFound",
        "serverNotFound",
        "toolNotFound",
    }
)
_BESIDE_OUTCOME = frozenset({"isBackground", "planUri"})
_WORST_FIRST = ({NEEDS_CONFIRMATION}, _FAILED, _REJECTED, _OK, _OPEN)

_OUTPUT_FIELDS = (
    "content",
    "markdown",
    "diffString",
    "error",
    "errorMessage",
    "reason",
    "message",
)


@frozen
class Call:
    """One line's view of a call.  ``args`` and ``result`` are still JSON, if the line has them."""

    name: str
    kind: str
    args: Raw | None
    result: Raw | None
    id_beside: Raw | None
    news: tuple[tuple[str, str], ...]
    """Kind and name of what is new in the envelope, to be counted."""


@frozen
class Ending:
    """How a call ended.  ``outcome`` is None while it goes on; ``label`` is the CLI's word."""

    outcome: Outcome | None
    label: str | None
    output: str
    output_chars: int
    exit_code: int | None
    known: bool


def read_call(envelope: dict[str, Raw]) -> Call:
    """The one key that names a kind holds the call; raises ``ContractError`` without it."""
    kinds = [key for key in envelope if key == _FUNCTION or key.endswith(_KIND_SUFFIX)]
    if len(kinds) != 1:
        raise schema_error(f"{len(kinds)} tools in one call", "tool_call")
    kind = kinds[0]
    try:
        payload = read_fields(envelope[kind])
    except UNREADABLE:
        raise schema_error("the call is not an object", "tool_call", kind) from None
    if kind == _FUNCTION:
        name, args = _function(payload)
        news = []
    else:
        name, args = kind.removesuffix(_KIND_SUFFIX) or kind, payload.get("args")
        news = [] if name in _KINDS else [("tool", name)]
    news += [
        ("field", f"tool_call.{key}") for key in envelope if key != kind and key not in _SIBLINGS
    ]
    return Call(
        name=bounding.name(name),
        kind=kind,
        args=args,
        result=payload.get("result"),
        id_beside=envelope.get("toolCallId"),
        news=tuple(news),
    )


def call_id(told: Any, call: Call) -> str:
    """The id that the line tells, else the one inside of the call; raises ``ContractError``."""
    if _is_call_id(told):
        return str(told)
    for raw in (call.id_beside, _field(call.args, "toolCallId")):
        nested = None if raw is None else read_value(raw)
        if _is_call_id(nested):
            return str(nested)
    raise schema_error("no usable call id", "tool_call", call.kind)


def call_input(call: Call, bounds: Bounds) -> dict[str, Any] | None:
    """The arguments within their bounds; a plan exists nowhere else, so it counts as text."""
    if call.args is None:
        return None
    args = read_value(call.args)
    if call.kind == "createPlanToolCall" and isinstance(args, dict):
        plan = args.pop("plan", None)
        if isinstance(plan, str):
            rest = bounding.tool_input(args, bounds.tool_chars)
            return {"plan": bounding.head(plan, bounds.text_chars), **rest}
        args["plan"] = plan
    return bounding.tool_input(args, bounds.tool_chars)


def timeout_seconds(call: Call) -> float | None:
    """What a shell call declares for itself (the CLI writes milliseconds)."""
    raw = _field(call.args, "timeout") if call.kind == "shellToolCall" else None
    value = None if raw is None else read_value(raw)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return value / 1000


def read_ending(call: Call, limit: int) -> Ending:
    """The worst of the known outcomes that the line names, else its first unknown one."""
    result = _fields(call.result)
    label = _outcome_key(result)
    if label is None:
        return Ending(Outcome.FAILED, None, "", 0, None, known=True)
    payload = result[label]
    fields = _fields(payload)
    text = _output(payload, fields)
    code = _exit_code(fields)
    outcome: Outcome | None = Outcome.FAILED
    if label in _OPEN:
        outcome = None
    elif label in _REJECTED:
        outcome = Outcome.REJECTED
    elif label in _OK and not code and not _is_true(fields.get("isError")):
        outcome = Outcome.OK
    return Ending(
        outcome=outcome,
        label=bounding.name(label),
        output=bounding.tail(text, limit),
        output_chars=len(text),
        exit_code=code,
        known=any(label in group for group in _WORST_FIRST),
    )


def _function(payload: dict[str, Raw]) -> tuple[str, Raw | None]:
    raw = payload.get("name")
    name = None if raw is None else read_value(raw)
    arguments = payload.get("arguments")
    inner = None if arguments is None else read_value(arguments)
    if isinstance(inner, str) and inner:
        try:
            msgspec.json.decode(inner)
            arguments = Raw(inner.encode())
        except UNREADABLE:
            pass
    return (name if isinstance(name, str) and name else _FUNCTION), arguments


def _is_call_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _CALL_ID_CHARS


def _fields(raw: Raw | None) -> dict[str, Raw]:
    if raw is None:
        return {}
    try:
        return read_fields(raw)
    except UNREADABLE:
        return {}


def _field(raw: Raw | None, key: str) -> Raw | None:
    return _fields(raw).get(key)


def _outcome_key(result: dict[str, Raw]) -> str | None:
    told = [key for key, raw in result.items() if bytes(raw) != b"null"]
    for group in _WORST_FIRST:
        for key in told:
            if key in group:
                return key
    return next((key for key in told if key not in _BESIDE_OUTCOME), None)


def _exit_code(fields: dict[str, Raw]) -> int | None:
    raw = fields.get("exitCode", fields.get("exit_code"))
    value = None if raw is None else read_value(raw)
    return value if type(value) is int and value in _EXIT_CODES else None


def _is_true(raw: Raw | None) -> bool:
    return raw is not None and bytes(raw) == b"true"


def _output(payload: Raw, fields: dict[str, Raw]) -> str:
    """What a person would want to see of an outcome; unknown shapes are shown as their JSON."""
    shell = _text(fields.get("interleavedOutput"))
    if shell:
        return shell
    streams = [_text(fields.get("stdout")), _text(fields.get("stderr"))]
    told = [*streams, *(_text(fields.get(field)) for field in _OUTPUT_FIELDS)]
    if any(streams):
        return "\n".join(stream.rstrip("\n") for stream in streams if stream)
    if any(text is not None for text in told):
        return next((text for text in told if text), "")
    value = read_value(payload)
    if isinstance(value, str):
        return value
    return bytes(payload).decode() if value else ""


def _text(raw: Raw | None) -> str | None:
    if raw is None:
        return None
    value = read_value(raw)
    if isinstance(value, list):
        value = "\n".join(filter(None, map(_part, value)))
    return value if isinstance(value, str) else None


def _part(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, dict) else part
    text = text.get("text") if isinstance(text, dict) else text
    return text if isinstance(text, str) else None
