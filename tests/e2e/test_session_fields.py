"""Every field of a chat, from one table: absent, null, blank, good and bad, made and changed."""

import documented
import httpx
import pytest
from attrs import field, frozen

from agentsdock.web.openapi.schemas import SCHEMAS

NO_TEXT = (5, 1.5, True, [], {}, ["x"])
NO_FLAG = (0, 1, "true", "", [], {})
KEEPS, CLEARS, RESETS = "stays as it is", "is cleared", "goes back to its default"
CWD = "/the/server/s/own/folder"


@frozen
class Field:
    """``good`` maps what is sent to what is shown then; ``null`` says what null does in a patch.

    ``blank`` is what a blank text becomes, or None where it is as bad as another text.
    """

    name: str
    default: object
    good: dict
    bad: tuple
    null: str
    blank: bool = False
    status: int = 422
    also: frozenset = field(default=frozenset(), converter=frozenset)
    """Other keys that follow it."""


def text(name, limit, default, null, good=(), **more):
    whole = "x" * limit
    shown = {"some text": "some text", "ümläut \N{GRINNING FACE}": "ümläut \N{GRINNING FACE}"}
    shown |= {whole: whole, **dict(good)}
    bad = (*NO_TEXT, whole + "x", "nul \0")
    return Field(name, default, shown, bad, null, **more)


def choice(name, default, *others, bad=()):
    good = {value: value for value in (default, *others)}
    unknown = (*NO_TEXT, "yolo", default.upper(), f" {default}", *bad)
    return Field(name, default, good, unknown, RESETS)


FIELDS = (
    text("title", 1000, "New chat", KEEPS, {" spaces ": "spaces"}),
    text("folder", 1000, "General", KEEPS, {" Work ": "Work"}, blank=True, also={"sort_order"}),
    text("cwd", 4096, CWD, KEEPS, {"/not/there": "/not/there", "relative": "relative"}, blank=True),
    Field(
        "backend",
        "cursor",
        {"claude": "claude", "codex": "codex", "cursor": "cursor"},
        ("opencode", "Cursor", "x" * 64),
        KEEPS,
        status=400,
        also={"latest_event_seq", "latest_event_type", "latest_event_at"},
    ),
    text("model", 240, None, CLEARS, {" auto ": "auto"}, blank=True),
    text("effort", 64, None, CLEARS, {" HIGH ": "high", "Extra High": "extra high"}, blank=True),
    text("system_prompt", 24_000, None, CLEARS, {" as it is\n": " as it is\n"}, blank=True),
    Field("pinned", False, {True: True}, NO_FLAG, KEEPS, also={"pinned_at", "sort_order"}),
    Field("archived", False, {True: True}, NO_FLAG, KEEPS, also={"archived_at", "sort_order"}),
    choice("cursor_permission_mode", "default", "full_access", "plan"),
    choice(
        "claude_permission_mode",
        "default",
        *("acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"),
        bad=("",),
    ),
    choice("codex_approval_policy", "never", "on-request", "untrusted", bad=("", "on-failure")),
    choice(
        "codex_sandbox_mode", "danger-full-access", "read-only", "workspace-write", bad=("", "off")
    ),
    text("codex_permission_profile", 240, None, CLEARS, {" mine ": "mine"}, blank=True),
    choice("codex_approvals_reviewer", "user", "auto_review", "guardian_subagent", bad=("",)),
    choice("provider_jobs_access", "full", "read_only", "blocked", bad=("",)),
)
BY_NAME = {each.name: each for each in FIELDS}
ONLY_AT_CREATION = {
    "provider_session_id",
    "session_id",
    "cursor_session_id",
    "claude_session_id",
    "codex_thread_id",
    "import_history",
}
SET_BY_THE_SERVER = {
    "id": "sess_0000000000000000",
    "parent_id": "sess_0000000000000000",
    "fork_from": "thread",
    "memory_seed": "remember me",
    "locked": True,
    "backend_locked": True,
    "sort_order": -5.0,
    "created_at": "1999-01-01T00:00:00Z",
    "latest_event_seq": 99,
    "latest_agent_event_seq": 99,
    "last_read_agent_event_seq": 99,
    "manual_unread": True,
    "pinned_at": "1999-01-01T00:00:00Z",
    "cursor": {"session_id": "x"},
    "initialising": True,
}
every_field = pytest.mark.parametrize("tried", FIELDS, ids=lambda each: each.name)
texts_with_blanks = pytest.mark.parametrize(
    "tried", [each for each in FIELDS if each.blank], ids=lambda each: each.name
)


@pytest.fixture(scope="module")
def client(shared_server):
    with httpx.Client(
        base_url=shared_server.url,
        headers={"X-AgentsDock-Token": shared_server.token},
        trust_env=False,
        timeout=30,
        event_hooks={"response": [documented.check]},
    ) as client:
        client.folder = client.get("/api/health").json()["default_cwd"]
        yield client


def shown(client, session):
    """As the table writes it."""
    return {key: CWD if value == client.folder else value for key, value in session.items()}


def made(client, **fields):
    answer = client.post("/api/sessions", json=fields)
    assert answer.status_code == 200, (fields, answer.text)
    return shown(client, answer.json()["session"])


def patched(client, chat, **fields):
    answer = client.patch(f"/api/sessions/{chat['id']}", json=fields)
    assert answer.status_code == 200, (fields, answer.text)
    return shown(client, answer.json()["session"])


def read(client, chat):
    return shown(client, client.get(f"/api/sessions/{chat['id']}").json()["session"])


def changed(before, after):
    assert before.keys() == after.keys()
    return {key for key in after if after[key] != before[key]} - {"updated_at"}


def assert_refused(answer, tried):
    assert answer.status_code == tried.status, answer.text
    detail = answer.json()["detail"]
    if tried.status == 422:
        assert [item["loc"] for item in detail] == [["body", tried.name]]
        assert all(item["msg"] for item in detail)
    else:
        assert tried.name in detail


def test_the_table_has_every_field_that_the_document_has():
    assert set(BY_NAME) == set(SCHEMAS["PatchSession"]["properties"])
    assert {*BY_NAME, *ONLY_AT_CREATION} == set(SCHEMAS["CreateSession"]["properties"])


def test_what_is_absent_has_its_default(client):
    chat = made(client)
    assert {each.name: chat[each.name] for each in FIELDS} == {
        each.name: each.default for each in FIELDS
    }
    nothing = dict.fromkeys(BY_NAME)
    again = made(client, **nothing)
    assert {name: again[name] for name in nothing} == {name: chat[name] for name in nothing}


@every_field
def test_a_chat_is_made_with_what_was_sent(client, tried):
    for sent, expected in tried.good.items():
        chat = made(client, **{tried.name: sent})
        assert chat[tried.name] == expected
        others = BY_NAME.keys() - {tried.name}
        assert {n: chat[n] for n in others} == {n: BY_NAME[n].default for n in others}
        assert read(client, chat) == chat


@every_field
def test_a_chat_is_not_made_with_what_cannot_be_used(client, tried):
    before = client.get("/api/sessions?summary=true").json()
    for value in tried.bad:
        assert_refused(client.post("/api/sessions", json={tried.name: value}), tried)
    assert client.get("/api/sessions?summary=true").json() == before


@every_field
def test_a_patch_changes_what_was_sent_and_nothing_else(client, tried):
    for sent, expected in tried.good.items():
        before = made(client)
        after = patched(client, before, **{tried.name: sent})
        assert after[tried.name] == expected
        assert changed(before, after) - tried.also <= {tried.name}
        assert read(client, before) == after


@every_field
def test_a_patch_that_cannot_be_used_changes_nothing(client, tried):
    before = made(client)
    for value in tried.bad:
        fields = {"title": "not this either", tried.name: value}
        answer = client.patch(f"/api/sessions/{before['id']}", json=fields)
        assert_refused(answer, tried)
    assert read(client, before) == before


@every_field
def test_null_in_a_patch_does_what_the_contract_says(client, tried):
    sent, value = list(tried.good.items())[-1]
    before = made(client, **{tried.name: sent})
    after = patched(client, before, **{tried.name: None})
    expected = {KEEPS: value, CLEARS: None, RESETS: tried.default}[tried.null]
    assert after[tried.name] == expected


@texts_with_blanks
def test_a_blank_text_is_as_none(client, tried):
    expected = tried.default
    for blank in ("", "  ", "\n"):
        assert made(client, **{tried.name: blank})[tried.name] == expected
        chat = made(client, **{tried.name: next(iter(tried.good))})
        assert patched(client, chat, **{tried.name: blank})[tried.name] == expected


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_permission_mode_of_cursor_is_its_default(client, blank):
    chat = made(client, cursor_permission_mode=blank)
    assert chat["cursor_permission_mode"] == "default"
    chat = made(client, cursor_permission_mode="plan")
    chat = patched(client, chat, cursor_permission_mode=blank)
    assert chat["cursor_permission_mode"] == "default"


def test_an_empty_patch_changes_nothing_but_the_stamp(client):
    before = made(client, title="t", pinned=True, model="m")
    assert changed(before, patched(client, before)) == set()


def test_what_only_the_server_sets_is_ignored_like_any_unknown_key(client):
    chat = made(client, **SET_BY_THE_SERVER)
    for name in SET_BY_THE_SERVER.keys() & chat.keys():
        assert chat[name] != SET_BY_THE_SERVER[name], name
    assert changed(chat, patched(client, chat, **SET_BY_THE_SERVER, surprise={"a": [1]})) == set()


def test_a_summary_is_the_detail_without_the_keys_of_the_detail(client):
    chat = made(client, system_prompt="Be brief.", cursor_permission_mode="plan")
    rows = client.get("/api/sessions?summary=true").json()["sessions"]
    [row] = [shown(client, row) for row in rows if row["id"] == chat["id"]]
    assert row == {key: chat[key] for key in row}
    assert chat.keys() - row.keys() == {
        *("system_prompt", "session_id", "cursor_session_id", "claude_session_id"),
        *("codex_thread_id", "cursor_permission_mode", "claude_permission_mode"),
        *("codex_approval_policy", "codex_sandbox_mode", "codex_permission_profile"),
        *("codex_approvals_reviewer", "provider_jobs_access", "codex_goal"),
        *("codex_goal_time_budget_seconds", "codex_goal_time_budget_exhausted", "usage"),
    }


OWN_NAMES = {
    "cursor": "cursor_session_id",
    "claude": "claude_session_id",
    "codex": "codex_thread_id",
}


@pytest.mark.parametrize("backend", OWN_NAMES)
@pytest.mark.parametrize("name", ["provider_session_id", "session_id", "own name"])
def test_the_id_of_a_cli_s_session_has_three_names(client, backend, name):
    own = OWN_NAMES[backend]
    fields = {"backend": backend, own if name == "own name" else name: " abcdefghij-1 "}
    chat = made(client, import_history=False, **fields)
    assert (chat["session_id"], chat[own]) == ("abcdefghij-1", "abcdefghij-1")
    assert (chat["title"], chat["backend_locked"]) == (f"Resumed {backend.title()} abcdefgh", True)
    assert {chat[other] for other in OWN_NAMES.values() if other != own} == {None}
    answer = client.patch(f"/api/sessions/{chat['id']}", json={"backend": "codex"})
    assert answer.status_code == (200 if backend == "codex" else 409)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_blank_id_binds_nothing(client, value):
    chat = made(client, provider_session_id=value, import_history=True)
    assert (chat["session_id"], chat["backend_locked"], chat["title"]) == (None, False, "New chat")


@pytest.mark.parametrize("value", [5, [], True, "x" * 257, "a\0b"])
@pytest.mark.parametrize("name", ["provider_session_id", "session_id", "cursor_session_id"])
def test_an_id_that_cannot_be_one_is_refused(client, name, value):
    answer = client.post("/api/sessions", json={name: value})
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body", name])


@pytest.mark.parametrize("value", ["-rf", "a b", "../x", "ü"])
def test_an_id_that_no_cli_gives_is_refused(client, value):
    answer = client.post("/api/sessions", json={"provider_session_id": value})
    assert answer.status_code == 400
    assert "letter" in answer.json()["detail"]


@pytest.mark.parametrize("value", [0, "yes", []])
def test_whether_history_is_imported_is_a_flag(client, value):
    answer = client.post("/api/sessions", json={"import_history": value})
    assert (answer.status_code, answer.json()["detail"][0]["loc"][-1]) == (422, "import_history")


CODEX = {"backend": "codex", "model": "gpt-5.4"}


@pytest.mark.parametrize("spelling", ["xhigh", "XHIGH", "extra high", "extra-high", "Extra_High"])
def test_an_effort_of_codex_has_several_spellings(client, spelling):
    assert made(client, **CODEX, effort=spelling)["effort"] == "xhigh"
    chat = made(client, **CODEX)
    assert patched(client, chat, effort=spelling)["effort"] == "xhigh"


@pytest.mark.parametrize("model", [None, "gpt-of-tomorrow"])
def test_a_model_that_nobody_knows_takes_any_effort_of_codex(client, model):
    assert made(client, backend="codex", model=model, effort="ultra")["effort"] == "ultra"
    answer = client.post(
        "/api/sessions", json={"backend": "codex", "model": model, "effort": "utmost"}
    )
    assert answer.status_code == 400
    assert "ultra" in answer.json()["detail"]


def test_an_effort_that_its_model_does_not_have_is_refused_when_it_is_asked_for(client):
    answer = client.post("/api/sessions", json={**CODEX, "effort": "max"})
    assert (answer.status_code, "'max'" in answer.json()["detail"]) == (400, True)
    chat = made(client, **CODEX, effort="low")
    for fields in ({"effort": "max"}, {"model": "gpt-5.5", "effort": "max"}):
        answer = client.patch(f"/api/sessions/{chat['id']}", json=fields)
        assert answer.status_code == 400
    turn = {"prompt": "x", "model": "gpt-5.5", "effort": "max"}
    assert client.post(f"/api/sessions/{chat['id']}/turns", json=turn).status_code == 400
    assert read(client, chat) == chat


def test_an_effort_of_an_earlier_model_is_dropped_in_silence(client):
    chat = made(client, backend="codex", model="gpt-5.6-sol", effort="ultra")
    chat = patched(client, chat, model="gpt-5.5")
    assert (chat["model"], chat["effort"]) == ("gpt-5.5", None)
    chat = patched(client, chat, effort="high")
    assert patched(client, chat, model="gpt-5.4")["effort"] == "high"


def test_another_backend_forgets_model_and_effort_unless_they_are_sent_along(client):
    chat = made(client, model="auto", effort="weird")
    chat = patched(client, chat, backend="codex", effort="ultra")
    assert (chat["model"], chat["effort"]) == (None, "ultra")
    chat = patched(client, chat, backend="claude")
    assert (chat["model"], chat["effort"]) == (None, None)
    chat = patched(client, chat, model="opus", effort="whatever it takes")
    assert patched(client, chat, backend="claude")["model"] == "opus"


def test_an_archived_chat_is_never_pinned(client):
    assert made(client, archived=True, pinned=True)["pinned"] is False
    for first in ({}, {"archived": True}):
        chat = patched(client, made(client), **first)
        chat = patched(client, chat, archived=True, pinned=True)
        assert (chat["archived"], chat["pinned"], chat["pinned_at"]) == (True, False, None)
    back = patched(client, chat, archived=False, pinned=True)
    assert (back["archived"], back["archived_at"], back["pinned"]) == (False, None, True)


def test_an_archived_chat_takes_no_turns_until_it_is_unarchived(client):
    chat = made(client, archived=True)
    stamp = patched(client, chat, archived=True)["archived_at"]
    assert stamp == chat["archived_at"]
    turn = {"prompt": "[[fake]]"}
    answer = client.post(f"/api/sessions/{chat['id']}/turns", json=turn)
    assert (answer.status_code, "archived" in answer.json()["detail"]) == (409, True)
    patched(client, chat, archived=False)
    assert client.post(f"/api/sessions/{chat['id']}/turns", json=turn).status_code == 200
