"""The shapes of bodies and answers, as JSON Schema.

Answers may hold more than is named here: clients ignore what they do not know.
"""

from typing import Any

from agentsdock.model.sessions import (
    BACKENDS,
    CLAUDE_PERMISSION_MODES,
    CODEX_APPROVAL_POLICIES,
    CODEX_APPROVALS_REVIEWERS,
    CODEX_SANDBOX_MODES,
    CURSOR_PERMISSION_MODES,
    PROVIDER_JOBS_ACCESS,
)

Schema = dict[str, Any]

MAX_INTEGER = 2**53 - 1
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
TIME: Schema = {"type": "string", "description": "UTC, whole seconds: 2026-01-02T03:04:05Z"}


def nullable(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def text(limit: int) -> Schema:
    return {"type": "string", "maxLength": limit}


def one_of(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(values)}


def array(items: Schema, limit: int | None = None) -> Schema:
    found: Schema = {"type": "array", "items": items}
    return found if limit is None else {**found, "maxItems": limit}


def record(required: str = "", **properties: Schema) -> Schema:
    """An object; ``required`` names keys that are always there, ``*`` all of them."""
    names = list(properties) if required == "*" else required.split()
    found: Schema = {"type": "object", "properties": properties}
    return {**found, "required": names} if names else found


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_SETTINGS: dict[str, Schema] = {
    "title": nullable(text(1000)),
    "folder": nullable(text(1000)),
    "cwd": nullable(text(4096)),
    "backend": nullable(text(64)),
    "model": nullable(text(240)),
    "effort": nullable(text(64)),
    "system_prompt": nullable(text(24_000)),
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

_SUMMARY: dict[str, Schema] = {
    "id": STRING,
    "title": STRING,
    "folder": STRING,
    "cwd": STRING,
    "backend": one_of(BACKENDS),
    "model": nullable(STRING),
    "effort": nullable(STRING),
    "parent_id": nullable(STRING),
    "fork_from": nullable(STRING),
    "memory_forked": nullable(FLAG),
    "memory_seed_used": nullable(FLAG),
    "pinned": FLAG,
    "pinned_at": nullable(STRING),
    "archived": FLAG,
    "archived_at": nullable(STRING),
    "sort_order": NUMBER,
    "created_at": TIME,
    "updated_at": TIME,
    "latest_event_seq": INTEGER,
    "latest_event_at": nullable(STRING),
    "latest_event_type": nullable(STRING),
    "latest_agent_event_seq": INTEGER,
    "latest_agent_event_at": nullable(STRING),
    "latest_agent_event_type": nullable(STRING),
    "last_read_agent_event_seq": INTEGER,
    "last_read_agent_event_at": nullable(STRING),
    "manual_unread": FLAG,
    "backend_locked": FLAG,
}
_DETAIL: dict[str, Schema] = {
    "system_prompt": nullable(STRING),
    "session_id": nullable(STRING),
    "cursor_session_id": nullable(STRING),
    "claude_session_id": nullable(STRING),
    "codex_thread_id": nullable(STRING),
    "cursor_permission_mode": one_of(CURSOR_PERMISSION_MODES),
    "claude_permission_mode": one_of(CLAUDE_PERMISSION_MODES),
    "codex_approval_policy": one_of(CODEX_APPROVAL_POLICIES),
    "codex_sandbox_mode": one_of(CODEX_SANDBOX_MODES),
    "codex_permission_profile": nullable(STRING),
    "codex_approvals_reviewer": one_of(CODEX_APPROVALS_REVIEWERS),
    "provider_jobs_access": one_of(PROVIDER_JOBS_ACCESS),
}
_FILE: dict[str, Schema] = {
    "id": STRING,
    "session_id": STRING,
    "kind": one_of(("upload", "artifact")),
    "filename": STRING,
    "path": STRING,
    "size": INTEGER,
    "content_type": STRING,
    "created_at": TIME,
}
_PAGE: dict[str, Schema] = {
    "session": ref("Session"),
    "events": array(ref("Event")),
    "queued_turns": array(ref("QueuedTurn")),
    "events_omitted_before": INTEGER,
    "events_omitted_after": INTEGER,
    "latest_seq": INTEGER,
    "event_count": INTEGER,
}
_HIT: dict[str, Schema] = {
    "session_id": STRING,
    "event_id": STRING,
    "seq": INTEGER,
    "ts": TIME,
    "role": one_of(("user", "assistant", "trace", "error", "job", "file", "system")),
    "snippet": STRING,
}

SCHEMAS: dict[str, Schema] = {
    "Error": record("detail", detail={"description": "A text, an object with a code, or a list."}),
    "SessionSummary": record("*", **_SUMMARY),
    "Session": record("*", **_SUMMARY, **_DETAIL),
    "OneSession": record("*", session=ref("Session")),
    "Sessions": record("*", sessions=array({"anyOf": [ref("Session"), ref("SessionSummary")]})),
    "Event": record("*", seq=INTEGER, id=STRING, session_id=STRING, type=STRING, ts=TIME),
    "QueuedTurn": record(
        "*",
        queued_id=STRING,
        session_id=STRING,
        prompt=STRING,
        file_ids=array(STRING),
        created_at=TIME,
        position=INTEGER,
        paused=FLAG,
        pause_reason=nullable(STRING),
    ),
    "CreateSession": record(
        "",
        **_SETTINGS,
        provider_session_id=nullable(text(256)),
        session_id=nullable(text(256)),
        cursor_session_id=nullable(text(256)),
        claude_session_id=nullable(text(256)),
        codex_thread_id=nullable(text(256)),
        import_history=nullable(FLAG),
    ),
    "PatchSession": record("", **_SETTINGS),
    "Page": record(
        " ".join(_PAGE),
        **_PAGE,
        semantic_item_count=INTEGER,
        semantic_total=INTEGER,
        semantic_omitted_before=INTEGER,
        semantic_omitted_after=INTEGER,
        next_semantic_before=nullable(INTEGER),
    ),
    "Deleted": record("*", ok=FLAG, deleted=FLAG, deleted_jobs=INTEGER),
    "MarkRead": record(last_read_agent_event_seq=nullable(INTEGER)),
    "Place": record(
        direction=nullable(one_of(("up", "down"))),
        target_id=nullable(text(128)),
        placement=nullable(one_of(("before", "after"))),
        target_folder=nullable(text(1000)),
    ),
    "Fork": record(title=nullable(text(1000))),
    "Forked": record("*", session=ref("Session"), sessions=array(ref("Session"))),
    "ImportHistory": record(
        force=nullable(FLAG), limit=nullable({"type": "integer", "minimum": 1})
    ),
    "Imported": record(
        "*", ok=FLAG, imported=INTEGER, source_path=nullable(STRING), message=STRING
    ),
    "PostTurn": record(
        "prompt",
        prompt=STRING,
        file_ids=nullable(array(text(256), 256)),
        backend=nullable(text(64)),
        model=nullable(text(240)),
        effort=nullable(text(64)),
        display_prompt=nullable(STRING),
        client_capabilities=nullable(array(text(240), 16)),
        chat_references=nullable(array(OBJECT, 16)),
    ),
    "Posted": record(
        "queued session event",
        run_id=STRING,
        queued=FLAG,
        queued_id=STRING,
        position=INTEGER,
        session=ref("Session"),
        event=nullable(OBJECT),
    ),
    "Stopped": record(
        "ok stopped outcome",
        ok=FLAG,
        stopped=FLAG,
        pending=FLAG,
        run_id=nullable(STRING),
        outcome=one_of(("stopped", "finished", "idle")),
        terminal_seq=nullable(INTEGER),
        tree_empty=nullable(FLAG),
        processes_ended=nullable(INTEGER),
        elapsed_ms=nullable(NUMBER),
        rung=nullable(STRING),
    ),
    "Extend": record(
        "seconds",
        seconds={"type": "number", "minimum": 1, "maximum": 86_400},
        clock=nullable(one_of(("idle", "turn"))),
    ),
    "Extended": record("*", ok=FLAG, run_id=STRING, idle_deadline=NUMBER, turn_deadline=NUMBER),
    "EditQueued": record(
        prompt=nullable(STRING),
        file_ids=nullable(array(text(256), 256)),
        client_capabilities=nullable(array(text(240), 16)),
        chat_references=nullable(array(OBJECT, 16)),
    ),
    "EditedQueued": record("*", ok=FLAG, queued_id=STRING, item=ref("QueuedTurn")),
    "Unqueued": record("*", ok=FLAG, unqueued=FLAG, queued_id=STRING, remaining=INTEGER),
    "Move": record("direction", direction=one_of(("up", "down"))),
    "Moved": record("*", ok=FLAG, queued_id=STRING, positions=array(OBJECT)),
    "RunNow": record(accept_deferred_queue_response=nullable(FLAG)),
    "Promoted": record(
        "ok queued_id interrupted deferred",
        ok=FLAG,
        queued_id=STRING,
        interrupted=FLAG,
        deferred=FLAG,
        replays_interrupted_message=FLAG,
        superseded_queued_ids=array(STRING),
    ),
    "Landmarks": record(
        "*",
        session_id=STRING,
        landmarks=array(
            record(
                "*",
                key=STRING,
                kind=STRING,
                start_seq=INTEGER,
                end_seq=INTEGER,
                title=STRING,
                preview=STRING,
                meta=STRING,
                timestamp=TIME,
            )
        ),
        latest_seq=INTEGER,
        event_count=INTEGER,
        generated_at=TIME,
    ),
    "Trace": record("*", events=array(ref("Event")), has_more=FLAG, next_after=INTEGER),
    "Subagents": record(
        "*",
        session_id=STRING,
        subagents=array(ref("Event")),
        count=INTEGER,
        active_count=INTEGER,
        latest_seq=INTEGER,
    ),
    "Hits": record(
        "*", session_id=STRING, query=STRING, results=array(record("*", **_HIT)), complete=FLAG
    ),
    "HitsEverywhere": record(
        "*",
        query=STRING,
        results=array(record("*", **_HIT, match_count=INTEGER)),
        complete=FLAG,
    ),
    "File": record("*", **_FILE),
    "OneFile": record("*", file=ref("File")),
    "Files": record(
        "*",
        files=array(record("*", **_FILE, event_id=STRING, event_seq=INTEGER, event_type=STRING)),
        total=INTEGER,
        offset=INTEGER,
        limit=nullable(INTEGER),
        has_more=FLAG,
    ),
    "OneEvent": record("*", event=ref("Event")),
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
                    record("path", path=text(4096), title=text(1000), text=text(12_000)),
                ]
            },
        },
    ),
    "Published": record(
        "*",
        ok=FLAG,
        chat_id=STRING,
        publication_id=STRING,
        run_id=STRING,
        receipts=array(
            record(
                "*",
                artifact_id=STRING,
                event_id=STRING,
                event_seq=INTEGER,
                run_id=STRING,
                filename=STRING,
                content_type=STRING,
                size=INTEGER,
            )
        ),
    ),
    "Upload": record("file", file={"type": "string", "format": "binary"}),
    "Folders": record(
        "*",
        input=STRING,
        resolved_path=nullable(STRING),
        exists=FLAG,
        base_path=nullable(STRING),
        suggestions=array(OBJECT),
        truncated=FLAG,
        message=nullable(STRING),
    ),
    "Diagnostic": record(
        "*",
        backend=STRING,
        status=one_of(("unknown", "ready", "missing", "unauthenticated", "error")),
        available=FLAG,
        installed=nullable(FLAG),
        authenticated=nullable(FLAG),
        version=nullable(STRING),
        message=STRING,
        action=nullable(STRING),
        checked_at=nullable(STRING),
        last_error=nullable(STRING),
        last_error_at=nullable(STRING),
    ),
    "Health": record(
        "ok server_version api_contract_version server_identity server_instance_id capabilities"
        " active queued runtimes job_guard",
        ok={"const": True},
        server_version=STRING,
        api_contract_version=INTEGER,
        server_identity=STRING,
        server_instance_id=STRING,
        capabilities=OBJECT,
        active=array(STRING),
        queued=OBJECT,
        runtimes={"type": "object", "additionalProperties": ref("Diagnostic")},
        job_guard=OBJECT,
    ),
    "Catalog": record("*", generated_at=TIME, backends=OBJECT),
    "Jobs": record("*", jobs=array(OBJECT)),
}
