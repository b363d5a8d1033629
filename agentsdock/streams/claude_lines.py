"""The lines that Claude Code's print mode writes (``--output-format stream-json``).

What the parser reads is typed; of the rest only the names are known, so that news of a release
can be told from what has always been there.
"""

from typing import cast

import msgspec
from msgspec import Raw, Struct

from agentsdock.streams.jsonlines import Vocabulary

NOT_READ = Raw(b"null")


class Line(Struct, tag_field="type", kw_only=True):
    session_id: str | None = None
    uuid: Raw = NOT_READ


class System(Line, tag="system"):
    """Init, status, retries, tasks: ``subtype`` says which, and every release adds some."""

    subtype: str
    cwd: str | None = None
    model: str | None = None
    tool_use_id: str | None = None


class Message(Struct):
    """A plain string only in ``user`` lines (replays, compaction)."""

    content: str | list[Raw]
    model: Raw = NOT_READ


class Assistant(Line, tag="assistant"):
    message: Message
    parent_tool_use_id: str | None = None
    error: Raw = NOT_READ
    is_api_error_message: bool | None = None


class User(Line, tag="user"):
    message: Message
    parent_tool_use_id: str | None = None


class Delta(Struct):
    type: str | None = None
    text: str | None = None


class ApiEvent(Struct):
    type: str
    delta: Delta | None = None


class StreamEvent(Line, tag="stream_event"):
    event: ApiEvent
    parent_tool_use_id: str | None = None


class Request(Struct):
    subtype: str
    tool_use_id: str | None = None


class ControlRequest(Line, tag="control_request"):
    request_id: str
    request: Request


class ControlCancel(Line, tag="control_cancel_request"):
    request_id: str


class Response(Struct):
    request_id: str


class ControlResponse(Line, tag="control_response"):
    response: Response


class Final(Line, tag="result"):
    """``is_error`` alone tells a failure; ``subtype`` and ``terminal_reason`` vary by version."""

    subtype: str
    is_error: bool
    result: str | None = None
    errors: Raw = NOT_READ
    usage: Raw = NOT_READ
    total_cost_usd: Raw = NOT_READ
    permission_denials: Raw = NOT_READ


class SignOfLife(Line):
    """Lines that tell how things go and nothing that a timeline would keep."""


class Block(Struct):
    type: str


class TextBlock(Struct):
    text: str


class ThinkingBlock(Struct):
    thinking: str


class ToolUse(Struct):
    id: str
    name: str
    input: Raw = NOT_READ


class ToolResult(Struct):
    tool_use_id: str
    content: Raw = NOT_READ
    is_error: bool | None = None


def _knowing(shape: type[Line], names: str, tag: str | None = None) -> type[Line]:
    """The shape with the fields that are known and not read, for lines of type ``tag``."""
    known = msgspec.defstruct(
        shape.__name__,
        [(name, Raw, NOT_READ) for name in names.split()],
        bases=(shape,),
        tag=tag or shape.__struct_config__.tag,
        tag_field="type",
        kw_only=True,
    )
    return cast(type[Line], known)


VOCABULARY = Vocabulary[Line](
    _knowing(
        System,
        "additional_directories agents analytics_disabled apiKeySource attempt betas capabilities "
        "claude_code_version compact_metadata compact_result content decision_reason "
        "decision_reason_type description error error_status estimated_tokens "
        "estimated_tokens_delta exit_code fast_mode_disabled_reason fast_mode_state hook_event "
        "hook_id hook_name is_backgrounded last_tool_name level max_retries mcp_servers "
        "memory_paths message messaging_socket_path original_cwd outcome output output_file "
        "output_style patch per_turn_effort_active permissionMode plugins "
        "product_feedback_disabled prompt retry_delay_ms run_id sandbox_enabled "
        "served_by_anthropic skills slash_commands spawn_depth status stderr stdout subagent_type "
        "summary summary_is_report task_id task_type tasks terminal_slash_commands tool_name "
        "tools ultrathink_available ultrathink_typed_raises usage view_mode",
    ),
    _knowing(
        Assistant,
        "aborted agent_id api_error api_error_status api_error_type request_id subagent_type "
        "task_description thinking_display thinking_duration_ms timestamp tool_use_meta",
    ),
    _knowing(
        User,
        "agent_id isReplay isSynthetic refusal_retry refused_message_id subagent_type "
        "task_description timestamp tool_result_meta tool_use_result",
    ),
    _knowing(
        StreamEvent,
        "abandoned_blocks api_message_id thinking_display ttft_ms",
    ),
    _knowing(
        Final,
        "api_error api_error_status api_error_type begun_message_ids duration_api_ms duration_ms "
        "fast_mode_disabled_reason fast_mode_state first_content_frame_ms modelUsage "
        "model_usage_since_last_result num_turns origin queued_turn_count result_index "
        "safety_stops stop_reason structured_output subagent_stats terminal_reason "
        "time_to_request_ms ttft_ms ttft_stream_ms",
    ),
    ControlRequest,
    ControlCancel,
    ControlResponse,
    _knowing(SignOfLife, "isAuthenticating output error", tag="auth_status"),
    _knowing(SignOfLife, "", tag="keep_alive"),
    _knowing(SignOfLife, "suggestion", tag="prompt_suggestion"),
    _knowing(SignOfLife, "rate_limit_info", tag="rate_limit_event"),
    _knowing(
        SignOfLife,
        "tool_use_id tool_name parent_tool_use_id elapsed_time_seconds task_id",
        tag="tool_progress",
    ),
    _knowing(SignOfLife, "summary preceding_tool_use_ids", tag="tool_use_summary"),
)

KNOWN_SUBTYPES = frozenset(
    {
        "api_retry",
        "background_tasks_changed",
        "compact_boundary",
        "hook_progress",
        "hook_response",
        "hook_started",
        "informational",
        "init",
        "permission_denied",
        "status",
        "task_notification",
        "task_progress",
        "task_started",
        "task_updated",
        "thinking_tokens",
    }
)
"""Of ``system`` lines."""
