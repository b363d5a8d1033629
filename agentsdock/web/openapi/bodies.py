"""What clients send.  Keys that are not named are ignored."""

from agentsdock.model.sessions import (
    CLAUDE_PERMISSION_MODES,
    CODEX_APPROVAL_POLICIES,
    CODEX_APPROVALS_REVIEWERS,
    CODEX_SANDBOX_MODES,
    CURSOR_PERMISSION_MODES,
    PROVIDER_JOBS_ACCESS,
)
from agentsdock.web.openapi.shapes import (
    FLAG,
    INTEGER,
    OBJECT,
    STRING,
    Schema,
    array,
    nullable,
    one_of,
    record,
    text,
    told,
)

_SETTINGS: dict[str, Schema] = {
    "title": nullable(text(1000)),
    "folder": nullable(text(1000)),
    "cwd": nullable(text(4096)),
    "backend": nullable(told(text(64), "claude, codex or cursor")),
    "model": nullable(text(240)),
    "effort": nullable(text(64)),
    "system_prompt": nullable(told(STRING, "At most 24,000 characters, unless set otherwise.")),
    "pinned": nullable(FLAG),
    "archived": nullable(FLAG),
    "cursor_permission_mode": nullable(one_of(("", *CURSOR_PERMISSION_MODES))),
    "claude_permission_mode": nullable(one_of(CLAUDE_PERMISSION_MODES)),
    "codex_approval_policy": nullable(one_of(CODEX_APPROVAL_POLICIES)),
    "codex_sandbox_mode": nullable(one_of(CODEX_SANDBOX_MODES)),
    "codex_permission_profile": nullable(text(240)),
    "codex_approvals_reviewer": nullable(one_of(CODEX_APPROVALS_REVIEWERS)),
    "provider_jobs_access": nullable(one_of(PROVIDER_JOBS_ACCESS)),
}
_PROVIDER_ID = nullable(told(text(256), "A session that the CLI knows and the chat goes on with."))
_MESSAGE: dict[str, Schema] = {
    "file_ids": nullable(array(text(256), 256)),
    "client_capabilities": nullable(array(text(240), 16)),
    "chat_references": nullable(array(OBJECT, 16)),
}

BODIES: dict[str, Schema] = {
    "CreateSession": record(
        **_SETTINGS,
        provider_session_id=_PROVIDER_ID,
        session_id=_PROVIDER_ID,
        cursor_session_id=_PROVIDER_ID,
        claude_session_id=_PROVIDER_ID,
        codex_thread_id=_PROVIDER_ID,
        import_history=nullable(FLAG),
    ),
    "PatchSession": record(**_SETTINGS),
    "MarkRead": record(last_read_agent_event_seq=nullable(INTEGER)),
    "Place": record(
        direction=nullable(one_of(("up", "down"))),
        target_id=nullable(text(128)),
        placement=nullable(one_of(("before", "after"))),
        target_folder=nullable(text(1000)),
    ),
    "Fork": record(title=nullable(text(1000))),
    "ImportHistory": record(
        force=nullable(FLAG), limit=nullable({"type": "integer", "minimum": 1})
    ),
    "PostTurn": record(
        "prompt",
        prompt=told(STRING, "Of Cursor at most what one argument of a process may be."),
        backend=nullable(text(64)),
        model=nullable(text(240)),
        effort=nullable(text(64)),
        display_prompt=nullable(STRING),
        **_MESSAGE,
    ),
    "Extend": record(
        "seconds",
        seconds={"type": "number", "minimum": 1, "maximum": 86_400},
        clock=nullable(one_of(("idle", "turn"))),
    ),
    "EditQueued": record(prompt=nullable(STRING), **_MESSAGE),
    "Move": record("direction", direction=one_of(("up", "down"))),
    "RunNow": record(accept_deferred_queue_response=nullable(FLAG)),
    "Publish": record(
        "publication_id files",
        publication_id={"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"},
        files={
            "type": "array",
            "minItems": 1,
            "maxItems": 64,
            "items": {
                "anyOf": [
                    text(4096),
                    record(
                        "path",
                        path=text(4096),
                        title=nullable(text(1000)),
                        text=nullable(text(12_000)),
                    ),
                ]
            },
        },
    ),
    "Upload": record("file", file={"type": "string", "format": "binary"}),
}
