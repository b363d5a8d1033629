"""A chat as it is kept on disk, and the two projections of it that clients see."""

from typing import Any

from attrs import asdict, frozen

from agentsdock.model.usage import Usage, usage_fields

BACKENDS = ("claude", "codex", "cursor")
CURSOR_PERMISSION_MODES = ("default", "full_access", "plan")
CLAUDE_PERMISSION_MODES = (
    "default",
    "acceptEdits",
    "plan",
    "bypassPermissions",
    "dontAsk",
    "auto",
)
CODEX_APPROVAL_POLICIES = ("never", "on-request", "untrusted")
CODEX_SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access")
CODEX_APPROVALS_REVIEWERS = ("user", "auto_review", "guardian_subagent")
PROVIDER_JOBS_ACCESS = ("full", "read_only", "blocked")

ORDER_STEP = 1000.0
DEFAULT_TITLE = "New chat"
DEFAULT_FOLDER = "General"


@frozen
class ProviderBinding:
    """What one CLI knows this chat by, and what it was last told successfully.

    ``session_id`` is stored at a valid init; ``instruction_hash``/``_version`` only after a
    successful turn.  ``failed_resumes`` counts resumed turns in a row that failed before
    init: at one the id is suspect, at two the next turn starts afresh.  ``used`` is what the
    session had used when a turn ended, where the CLI tells no more than that.
    """

    session_id: str | None = None
    instruction_hash: str | None = None
    instruction_version: str | None = None
    failed_resumes: int = 0
    used: Usage | None = None


@frozen
class Session:
    """Durable fields of a chat.  Times are ISO stamps, ``sort_order`` has no unit."""

    id: str
    created_at: str
    updated_at: str
    title: str = DEFAULT_TITLE
    folder: str = DEFAULT_FOLDER
    cwd: str = ""
    backend: str = "cursor"
    model: str | None = None
    effort: str | None = None
    system_prompt: str | None = None
    parent_id: str | None = None
    fork_from: str | None = None
    memory_seed: str | None = None
    memory_seed_used: bool | None = None
    memory_forked: bool | None = None
    memory_fork_reason: str | None = None
    pinned: bool = False
    pinned_at: str | None = None
    archived: bool = False
    archived_at: str | None = None
    sort_order: float = 0.0
    last_read_agent_event_seq: int = 0
    last_read_agent_event_at: str | None = None
    manual_unread: bool = False
    locked: bool = False
    cursor: ProviderBinding = ProviderBinding()
    claude: ProviderBinding = ProviderBinding()
    codex: ProviderBinding = ProviderBinding()
    cursor_permission_mode: str = "default"
    claude_permission_mode: str = "default"
    codex_approval_policy: str = "never"
    codex_sandbox_mode: str = "danger-full-access"
    codex_permission_profile: str | None = None
    codex_approvals_reviewer: str = "user"
    provider_jobs_access: str = "full"
    usage: Usage | None = None
    """What its turns have used so far."""
    initialising: bool = False
    """A fork whose timeline is being copied: nobody sees it yet."""

    def binding(self, backend: str | None = None) -> ProviderBinding:
        found: ProviderBinding = getattr(self, backend or self.backend)
        return found

    @property
    def resumes(self) -> tuple[str, str] | None:
        """The backend, and the session of its CLI that the next turn goes on with or forks."""
        session_id = self.binding().session_id or self.fork_from
        return (self.backend, session_id) if session_id else None

    @property
    def backend_locked(self) -> bool:
        return self.locked or any(self.binding(name).session_id for name in BACKENDS)


@frozen
class Head:
    """Where a chat's timeline stands; kept by the store in the same transaction as the events."""

    seq: int = 0
    at: str | None = None
    type: str | None = None
    agent_seq: int = 0
    agent_at: str | None = None
    agent_type: str | None = None
    touched_at: str | None = None


_PLAIN = (
    "id",
    "title",
    "folder",
    "cwd",
    "backend",
    "model",
    "effort",
    "parent_id",
    "fork_from",
    "memory_forked",
    "memory_seed_used",
    "pinned",
    "pinned_at",
    "archived",
    "archived_at",
    "sort_order",
    "created_at",
    "last_read_agent_event_seq",
    "last_read_agent_event_at",
    "manual_unread",
    "backend_locked",
)
_DETAIL = (
    "system_prompt",
    "cursor_permission_mode",
    "claude_permission_mode",
    "codex_approval_policy",
    "codex_sandbox_mode",
    "codex_permission_profile",
    "codex_approvals_reviewer",
    "provider_jobs_access",
)


def summary(session: Session, head: Head) -> dict[str, Any]:
    """The list row: detail-only keys are left out, never null (clients merge rows)."""
    return {
        **{name: getattr(session, name) for name in _PLAIN},
        "codex_thread_status": None,
        "codex_pending_interaction_count": 0,
        "codex_needs_user_action": False,
        "claude_pending_interaction_count": 0,
        "claude_needs_user_action": False,
        "updated_at": max(session.updated_at, head.touched_at or ""),
        "latest_event_seq": head.seq,
        "latest_event_at": head.at,
        "latest_event_type": head.type,
        # A client that has read further takes what it read for an agent's: nothing is unread.
        "latest_agent_event_seq": max(head.agent_seq, session.last_read_agent_event_seq),
        "latest_agent_event_at": head.agent_at,
        "latest_agent_event_type": head.agent_type,
    }


def detail(session: Session, head: Head) -> dict[str, Any]:
    """Everything that a client may know of a chat; private fields stay inside."""
    return {
        **summary(session, head),
        **{name: getattr(session, name) for name in _DETAIL},
        "session_id": session.binding().session_id,
        "cursor_session_id": session.cursor.session_id,
        "claude_session_id": session.claude.session_id,
        "codex_thread_id": session.codex.session_id,
        "usage": usage_fields(session.usage) or None,
        "codex_goal": None,
        "codex_goal_time_budget_seconds": None,
        "codex_goal_time_budget_exhausted": False,
    }


def stored(session: Session) -> dict[str, Any]:
    return asdict(session)
