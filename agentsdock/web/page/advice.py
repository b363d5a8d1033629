"""What a person can do about a turn that failed, by its code."""

from collections.abc import Mapping
from typing import Any

_ADVICE = {
    "runtime_unavailable": "See Health for what is missing and the command that mends it.",
    "launch_refused": "A file or its target is gone. Send the message again without it.",
    "spawn_failed": "The program could not be started. See Health, then retry.",
    "prompt_too_large": "Shorten the message, or attach the long part as a file.",
    "startup_timeout": "The CLI did not begin in time. Retry; if it happens again, see Health.",
    "idle_timeout": "The CLI went silent. Retry, or grant more time when the warning comes.",
    "turn_timeout": "The turn used up its time. Split the task, or grant more time next time.",
    "bad_line": "The CLI printed something that is no event. Check its version on the Health page.",
    "line_too_long": "One event was larger than the limit. Ask for less output at once.",
    "output_limit": "The turn said more than the limit allows. Ask for less output.",
    "tool_limit": "The turn used more tools than the limit allows. Split the task.",
    "unknown_schema": "The CLI speaks a newer dialect. Look for an update of this server.",
    "missing_init": "The CLI ended before it began. Sign in to it again, then retry.",
    "session_mismatch": "The CLI continued another conversation. Fork the chat and go on there.",
    "approval_required": "The CLI asked for approval, which nobody can give here. Change the "
    "permission mode of this chat, then retry.",
    "missing_result": "The CLI ended in the middle. What it did is above; retry to go on.",
    "logical_error": "The CLI reports that it failed. Read its words, then retry.",
    "nonzero_exit": "The CLI exited with an error. Its last words are below.",
    "memory_limit": "The turn used too much memory. Split the task.",
    "storage_full": "Free some space on the server's disk, then retry.",
    "internal_error": "This is a bug of the server. Its log says where.",
    "server_restart": "The server restarted in the middle of the turn. Retry to go on.",
    "server_shutdown": "The server was stopped in the middle of the turn. Retry to go on.",
}


def advice(event: Mapping[str, Any]) -> str:
    return _ADVICE.get(str(event.get("code")), "")
