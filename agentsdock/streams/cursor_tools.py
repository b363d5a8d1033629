"""What a ``tool_call`` line of the Cursor CLI says: which tool, with what, and how it ended.

The kind of tool and the name of the outcome are data: new ones are shown, never refused.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from agentsdock.streams import bounding
from agentsdock.streams.jsonlines import UNREADABLE, read_fields, read_value, schema_error
from agentsdock.streams.neutral import Bounds, Outcome

_KIND_SUFFIX = "ToolCall"
_FUNCTION = "function"
_PLAN = "createPlanToolCall"
_ABSENT = Raw(b"null")
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
_EDITS = frozenset({"applyAgentDiff", "delete", "edit", "write"})
_SIBLINGS = frozenset({"toolCallId", "hookAdditionalContexts", "startedAtMs", "completedAtMs"})

NEEDS_CONFIRMATION = "needsConfirmation"
_OUTCOMES = {
    **dict.fromkeys(
        ["success", "complete", "registered", "startSuccess", "saveSuccess", "discardSuccess"],
        Outcome.OK,
    ),
    **dict.fromkeys(["approved", "async", "stillRunning"], Outcome.UNFINISHED),
    **dict.fromkeys(["rejected", "permissionDenied"], Outcome.REJECTED),
    **dict.fromkeys(
        [
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
            NEEDS_CONFIRMATION,
        ],
        Outcome.FAILED,
    ),
}
_WORST_FIRST = (Outcome.FAILED, Outcome.REJECTED, Outcome.OK, Outcome.UNFINISHED)
_BESIDE_OUTCOME = frozenset({"isBackground", "planUri"})


_Other = str | int | float | bool | list[Raw] | None


class Body(Struct, gc=False):
    """What stands under the key that names the kind of tool."""

    args: Raw = _ABSENT
    result: dict[str, Raw] | _Other = None
    name: Any = None
    arguments: Raw = _ABSENT


Envelope = dict[str, Body | _Other]
"""A ``tool_call`` field: one body, and facts beside it."""


class Call(Struct, frozen=True, gc=False):
    """One line's view of a call."""

    kind: str
    name: str
    args: Raw
    result: dict[str, Raw]
    id_beside: Any
    news: list[tuple[str, str]]
    """Kind and name of what is new in the envelope, to be counted."""


class Asked(Struct, frozen=True, gc=False):
    """What a call is to do: its arguments within their bounds, the timeout in seconds that a
    shell call declares, and the files that an edit names."""

    shown: dict[str, Any]
    timeout: float | None = None
    edits: tuple[str, ...] = ()


class Ending(Struct, frozen=True, gc=False):
    """How a call ended.  ``outcome`` is None while it goes on; ``label`` is the CLI's word."""

    outcome: Outcome | None
    label: str | None
    known: bool
    output: str = ""
    output_chars: int = 0
    exit_code: int | None = None


class _Outcome(Struct, gc=False):
    """The fields of an outcome that are read; most of the bytes are in others or shown twice."""

    exitCode: Any = None  # noqa: N815
    exit_code: Any = None
    isError: Any = None  # noqa: N815
    interleavedOutput: Raw = _ABSENT  # noqa: N815
    stdout: Raw = _ABSENT
    stderr: Raw = _ABSENT
    content: Raw = _ABSENT
    markdown: Raw = _ABSENT
    diffString: Raw = _ABSENT  # noqa: N815
    error: Raw = _ABSENT
    errorMessage: Raw = _ABSENT  # noqa: N815
    reason: Raw = _ABSENT
    message: Raw = _ABSENT


_TEXT_FIELDS = (
    "content",
    "markdown",
    "diffString",
    "error",
    "errorMessage",
    "reason",
    "message",
)
_read_outcome = msgspec.json.Decoder(_Outcome).decode


def read_call(envelope: Envelope) -> Call:
    """The one key that names a kind holds the call; raises ``ContractError`` without it."""
    kinds, news = [], []
    for key in envelope:
        if key.endswith(_KIND_SUFFIX) or key == _FUNCTION:
            kinds.append(key)
        elif key not in _SIBLINGS:
            news.append(("field", f"tool_call.{key}"))
    if len(kinds) != 1:
        raise schema_error(f"one tool was expected in a call, not {len(kinds)}", "tool_call")
    kind, body = kinds[0], envelope[kinds[0]]
    if not isinstance(body, Body):
        raise schema_error("the call is not an object", "tool_call", kind)
    name, args = kind.removesuffix(_KIND_SUFFIX) or kind, body.args
    if kind == _FUNCTION:
        args = _function_arguments(body.arguments)
        name = bounding.name(body.name) if body.name and isinstance(body.name, str) else kind
    elif name not in _KINDS:
        name = bounding.name(name)
        news.append(("tool", name))
    result = body.result if isinstance(body.result, dict) else {}
    return Call(kind, name, args, result, envelope.get("toolCallId"), news)


def call_id(told: Any, call: Call) -> str:
    """The id that the line tells, else the one inside of the call; raises ``ContractError``."""
    if isinstance(told, str) and 0 < len(told) <= _CALL_ID_CHARS:
        return told
    args = read_value(call.args)
    for nested in (call.id_beside, args.get("toolCallId") if isinstance(args, dict) else None):
        if isinstance(nested, str) and 0 < len(nested) <= _CALL_ID_CHARS:
            return nested
    raise schema_error("no usable call id", "tool_call", call.kind)


def read_input(call: Call, bounds: Bounds) -> Asked:
    args = read_value(call.args)
    if args is None:
        return Asked({})
    told = args if isinstance(args, dict) else {"value": args}
    seconds = _seconds(told.get("timeout")) if call.name == "shell" else None
    edits = bounding.paths([told.get("path")]) if call.name in _EDITS else ()
    plan = told.get("plan") if call.kind == _PLAN else None
    if isinstance(plan, str):
        # The plan exists nowhere else in the stream, so it may be as long as any text.
        rest = bounding.tool_input({**told, "plan": None}, bounds.tool_chars)
        return Asked({**rest, "plan": bounding.head(plan, bounds.text_chars)})
    if not bounding.fits(bytes(call.args), bounds.tool_chars):
        told = bounding.tool_input(told, bounds.tool_chars)
    return Asked(told, seconds, edits)


def read_ending(result: dict[str, Raw], limit: int) -> Ending:
    """The worst of the known outcomes that the line names, else its first unknown one."""
    label = _outcome_key(result)
    if label is None:
        return Ending(Outcome.FAILED, None, known=True)
    raw = result[label]
    try:
        payload = _read_outcome(raw)
    except UNREADABLE:
        payload = _Outcome()
    text = _output(payload, raw)
    code = payload.exit_code if payload.exitCode is None else payload.exitCode
    if type(code) is not int or code not in _EXIT_CODES:
        code = None
    known = label in _OUTCOMES
    outcome = _OUTCOMES.get(label, Outcome.FAILED)
    if outcome is Outcome.OK and (code or payload.isError is True):
        outcome = Outcome.FAILED
    return Ending(
        None if outcome is Outcome.UNFINISHED else outcome,
        label if known else bounding.name(label),
        known,
        bounding.tail(text, limit),
        len(text),
        code,
    )


def _function_arguments(raw: Raw) -> Raw:
    """The documented second form writes its arguments as JSON inside of a string."""
    inner = read_value(raw)
    if not isinstance(inner, str):
        return raw
    try:
        read_fields(inner)
    except UNREADABLE:
        return raw
    return Raw(inner.encode())


def _seconds(milliseconds: Any) -> float | None:
    if type(milliseconds) not in (int, float) or milliseconds <= 0:
        return None
    return float(milliseconds / 1000)


def _outcome_key(result: dict[str, Raw]) -> str | None:
    known = [key for key in result if key in _OUTCOMES]
    if len(known) == 1:
        return known[0]
    if known:
        told = [key for key in known if bytes(result[key]) != b"null"] or known
        return min(told, key=_badness)
    return next((key for key in result if key not in _BESIDE_OUTCOME), None)


def _badness(label: str) -> tuple[bool, int]:
    return label != NEEDS_CONFIRMATION, _WORST_FIRST.index(_OUTCOMES[label])


def _output(payload: _Outcome, raw: Raw) -> str:
    """What a person would want to see of an outcome; unknown shapes are shown as their JSON."""
    shell = _text(payload.interleavedOutput)
    if shell:
        return shell
    streams = [_text(payload.stdout), _text(payload.stderr)]
    if any(streams):
        return "\n".join(stream.rstrip("\n") for stream in streams if stream)
    told = [shell, *streams, *(_text(getattr(payload, field)) for field in _TEXT_FIELDS)]
    if any(text is not None for text in told):
        return next((text for text in told if text), "")
    value = read_value(raw)
    if isinstance(value, str):
        return value
    return bytes(raw).decode() if value else ""


def _text(raw: Raw) -> str | None:
    if raw is _ABSENT:
        return None
    value = read_value(raw)
    if isinstance(value, list):
        value = "\n".join(filter(None, map(_part, value)))
    return value if isinstance(value, str) else None


def _part(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, dict) else part
    text = text.get("text") if isinstance(text, dict) else text
    return text if isinstance(text, str) else None
