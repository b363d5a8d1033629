"""Every route of the API, one entry each: what it takes, what it answers, how it refuses.

A new route is one entry here, its body in ``bodies``, its answer in ``answers``.  A route that
is missing here, or is here and nowhere else, fails a test; so does an answer with a status, a
type or a key that is not told.
"""

from attrs import frozen

from agentsdock.web.openapi.shapes import (
    FLAG,
    INTEGER,
    Schema,
    one_of,
    text,
    told,
    whole,
)

S = "/api/sessions/{session_id}"
ROW = f"{S}/queue/{{queued_id}}"


@frozen
class Operation:
    """``body`` and ``answer`` name schemas; an answer with a slash is a media type.

    ``refusals`` are statuses besides those that any path may answer.
    """

    method: str
    path: str
    tag: str
    summary: str
    answer: str
    body: str | None = None
    query: tuple[tuple[str, Schema], ...] = ()
    required_query: tuple[str, ...] = ()
    refusals: tuple[int, ...] = ()
    body_required: bool = False


_WORDS = {"type": "string", "minLength": 2, "maxLength": 500}
_SEARCH = (
    ("q", told(_WORDS, 'All of these words; "quoted" ones as they stand.')),
    ("limit", told(whole(1, 100), "40 by itself.")),
)
_BYTES = "application/octet-stream"

OPERATIONS = (
    Operation("get", "/healthz", "Server", "Whether the server lives", "text/plain"),
    Operation("get", "/openapi.json", "Server", "This document", "application/json"),
    Operation("get", "/docs", "Server", "This document, to be read", "text/html"),
    Operation("get", "/metrics", "Server", "Figures in Prometheus form", "text/plain"),
    Operation("get", "/api/health", "Server", "What the server is, can and does", "Health"),
    Operation(
        "get",
        "/api/runtime/catalog",
        "Server",
        "Models and efforts of each CLI, and whether it is ready",
        "Catalog",
        query=(("refresh", told(FLAG, "Ask the CLIs anew.")),),
    ),
    Operation("get", "/api/jobs", "Server", "Scheduled jobs", "Jobs"),
    Operation(
        "get",
        "/api/working-directories/complete",
        "Server",
        "Folders whose path begins so",
        "Folders",
        query=(("path", text(4096)), ("limit", told(INTEGER, "24, and 50 at most."))),
        refusals=(400,),
    ),
    Operation(
        "get",
        "/api/sessions",
        "Chats",
        "All chats",
        "Sessions",
        query=(("summary", told(FLAG, "Without the keys that only a detail has.")),),
    ),
    Operation(
        "post",
        "/api/sessions",
        "Chats",
        "A new chat",
        "OneSession",
        body="CreateSession",
        refusals=(400,),
    ),
    Operation(
        "get",
        S,
        "Chats",
        "A chat and a page of its timeline",
        "Page",
        query=(
            ("after", told(INTEGER, "Only what follows this sequence number.")),
            ("before", told(INTEGER, "Only what comes before this sequence number.")),
            ("limit", told(INTEGER, "At most so many events; 100, and 1,000 at most.")),
            ("tail", told(FLAG, "The latest of them; not with after. By itself true.")),
            ("visible", told(FLAG, "Without raw_event.")),
            ("compact", told(FLAG, "Only what was said and how it ended.")),
            ("page_mode", told(one_of(("semantic",)), "Count landmarks instead of events.")),
            ("semantic_before", told(INTEGER, "As before, of a semantic page.")),
        ),
        refusals=(400, 404),
    ),
    Operation(
        "patch",
        S,
        "Chats",
        "Change a chat; only keys that are sent act",
        "OneSession",
        body="PatchSession",
        body_required=True,
        refusals=(400, 404, 409),
    ),
    Operation("delete", S, "Chats", "Delete a chat", "Deleted", refusals=(409,)),
    Operation(
        "post",
        f"{S}/read",
        "Chats",
        "Mark a chat as read",
        "OneSession",
        body="MarkRead",
        refusals=(404,),
    ),
    Operation(
        "post", f"{S}/unread", "Chats", "Mark a chat as unread", "OneSession", refusals=(404,)
    ),
    Operation(
        "post",
        f"{S}/order",
        "Chats",
        "Move a chat in the list",
        "Sessions",
        body="Place",
        body_required=True,
        refusals=(400, 404, 409),
    ),
    Operation(
        "post",
        f"{S}/fork",
        "Chats",
        "A new chat that begins with a copy of this one",
        "Forked",
        body="Fork",
        refusals=(404, 409),
    ),
    Operation(
        "post",
        f"{S}/import-history",
        "Chats",
        "Take over what the CLI's own transcript holds",
        "Imported",
        body="ImportHistory",
        refusals=(404, 409),
    ),
    Operation(
        "post",
        f"{S}/turns",
        "Turns",
        "Send a message: it runs, or waits its turn",
        "Posted",
        body="PostTurn",
        body_required=True,
        refusals=(400, 404, 409),
    ),
    Operation("post", f"{S}/stop", "Turns", "Stop what runs, pause what waits", "Stopped"),
    Operation(
        "post",
        f"{S}/runs/{{run_id}}/extend",
        "Turns",
        "Give a running turn more time",
        "Extended",
        body="Extend",
        body_required=True,
        refusals=(404, 409),
    ),
    Operation(
        "patch",
        ROW,
        "Queue",
        "Edit a waiting message",
        "EditedQueued",
        body="EditQueued",
        body_required=True,
        refusals=(400, 404, 409),
    ),
    Operation("delete", ROW, "Queue", "Take a message out", "Unqueued", refusals=(404, 409)),
    Operation(
        "post",
        f"{ROW}/move",
        "Queue",
        "Swap a message with its neighbour",
        "Moved",
        body="Move",
        body_required=True,
        refusals=(400, 404, 409),
    ),
    Operation(
        "post",
        f"{ROW}/run-now",
        "Queue",
        "Run a message next, in place of what runs now",
        "Promoted",
        body="RunNow",
        refusals=(404, 409),
    ),
    Operation(
        "get",
        f"{S}/timeline-index",
        "Reading",
        "The landmarks of a chat",
        "Landmarks",
        refusals=(404, 409),
    ),
    Operation(
        "get",
        f"{S}/runs/{{run_id}}/trace",
        "Reading",
        "What a turn did on its way",
        "Trace",
        query=(
            ("anchor_seq", told(whole(1), "Any event of the turn that is meant.")),
            ("after_seq", told(INTEGER, "The next_after of the last page.")),
            ("limit", told(whole(1, 1000), "160 by itself.")),
        ),
        refusals=(404,),
    ),
    Operation(
        "get",
        f"{S}/subagents",
        "Reading",
        "The helpers that the CLI started",
        "Subagents",
        query=(("limit", told(whole(1, 256), "64 by itself.")),),
        refusals=(404,),
    ),
    Operation(
        "get",
        f"{S}/diffs/{{run_id}}",
        "Reading",
        "What a turn changed",
        "text/x-diff",
        refusals=(404,),
    ),
    Operation(
        "get",
        f"{S}/search",
        "Reading",
        "Search a chat",
        "Hits",
        query=_SEARCH,
        required_query=("q",),
        refusals=(404,),
    ),
    Operation(
        "get",
        "/api/search",
        "Reading",
        "Search all chats that are not archived",
        "HitsEverywhere",
        query=_SEARCH,
        required_query=("q",),
    ),
    Operation(
        "get",
        f"{S}/events",
        "Reading",
        "The events of a chat, over a WebSocket",
        "websocket",
        query=(
            ("after", told(INTEGER, "The last sequence number that the client has.")),
            ("visible", told(FLAG, "Leave raw_event out of what has been.")),
            ("sync", told(FLAG, "With control frames.")),
        ),
    ),
    Operation(
        "post",
        f"{S}/files",
        "Files",
        "Give a file to a chat",
        "OneFile",
        body="Upload",
        body_required=True,
        refusals=(400, 404, 409, 413, 415),
    ),
    Operation(
        "get",
        f"{S}/files",
        "Files",
        "The files of a chat",
        "Files",
        query=(
            ("limit", told(whole(1, 200), "All of them by itself.")),
            ("offset", INTEGER),
            ("content_prefix", told(text(240), "Only content types that begin so.")),
        ),
        refusals=(404,),
    ),
    Operation("get", f"{S}/files/{{file_id}}", "Files", "A file", _BYTES, refusals=(404, 416)),
    Operation("head", f"{S}/files/{{file_id}}", "Files", "A file's size", _BYTES, refusals=(404,)),
    Operation(
        "get",
        f"{S}/files/{{file_id}}/event",
        "Files",
        "The event that brought a file",
        "OneEvent",
        refusals=(404,),
    ),
    Operation(
        "get",
        f"{S}/links/file",
        "Files",
        "A file by its id, name, title or path",
        _BYTES,
        query=(("target", text(4096)),),
        required_query=("target",),
        refusals=(400, 404, 416),
    ),
    Operation(
        "head",
        f"{S}/links/file",
        "Files",
        "The size of such a file",
        _BYTES,
        query=(("target", text(4096)),),
        required_query=("target",),
        refusals=(400, 404),
    ),
    Operation(
        "get",
        "/api/files/{file_id}",
        "Files",
        "A file, as older clients ask for it",
        _BYTES,
        query=(("session_id", text(128)),),
        refusals=(404, 416),
    ),
    Operation(
        "head",
        "/api/files/{file_id}",
        "Files",
        "Its size",
        _BYTES,
        query=(("session_id", text(128)),),
        refusals=(404,),
    ),
    Operation(
        "post",
        "/api/agent/sessions/{session_id}/artifacts",
        "Agents",
        "Hand out files; with the capability of the running turn, from this machine",
        "Published",
        body="Publish",
        body_required=True,
        refusals=(404, 409),
    ),
)
