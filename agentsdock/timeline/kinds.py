"""Which types of events are left out of a chat's outline, and which stand out in it."""

QUEUE_TYPES = frozenset(
    {
        "queue_snapshot",
        "turn_deferred",
        "turn_queue_delivery_fenced",
        "turn_queue_paused",
        "turn_queue_reordered",
        "turn_queue_run_now",
        "turn_queue_updated",
        "turn_queued",
        "turn_unqueued",
    }
)
HIDDEN_TYPES = QUEUE_TYPES | {
    "claude_subagents_stopped",
    "codex_goal_cleared",
    "codex_goal_updated",
    "codex_thread_status",
    "job_deleted",
    "job_updated",
    "raw_event",
    "subagent_state",
}
"""Never a landmark, nor part of one."""
ESSENTIAL_TYPES = frozenset({"artifact_created", "code_diff", "file_uploaded"})
