import pytest
from fake_dock import settings
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from agentsdock.model.errors import BadRequest, DockError, Unprocessable
from agentsdock.model.requests import UNSET, CreateSession, PatchSession, PostTurn, ReadPage
from agentsdock.web.parsing import MAX_DEPTH, Body, Query, is_too_deep
from agentsdock.web.sessions import read_new, read_page, read_patch
from agentsdock.web.turns import read_extension, read_idempotency, read_turn

BASE = settings()


def body(**fields):
    return Body(encode(fields))


def refusal(read, *args):
    with pytest.raises(DockError) as caught:
        read(*args)
    return caught.value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"a":1} x',
        b'{"prompt":NaN}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"[]",
        b'"text"',
        b"null",
        b"7",
    ],
)
def test_what_is_not_a_json_object_is_unprocessable(raw):
    assert refusal(Body, raw).status == 422


def nested(depth):
    return b'{"junk":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_nesting_is_bounded_in_fields_that_nobody_reads_too():
    Body(nested(MAX_DEPTH))
    assert refusal(Body, nested(MAX_DEPTH + 1)).status == 422


def test_lists_and_objects_are_bounded_together_and_texts_are_not():
    body(prompt="x" * 2**20, junk=["x" * 200_000])
    assert refusal(lambda: body(junk=["x" * 150_000], more={"a": "x" * 150_000})).status == 422


def test_brackets_in_texts_are_not_nesting():
    text = '[{"\\' * 5000
    assert body(prompt=text).text("prompt", 10**6) == text


values = st.recursive(
    st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


def depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (1 + max(map(depth, inner), default=0)) if isinstance(value, dict | list) else 0


@given(values, st.integers(0, 80))
def test_the_depth_of_any_value_is_judged_right(value, extra):
    for _ in range(extra):
        value = ["]{", value, {}]
    assert is_too_deep(encode(value)) == (depth(value) > MAX_DEPTH)


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "a\0b"}, "prompt"),
        ({"prompt": "x", "file_ids": "abc"}, "file_ids"),
        ({"prompt": "x", "file_ids": ["a", 5]}, "file_ids"),
        ({"prompt": "x", "file_ids": ["a" * 257]}, "file_ids"),
        ({"prompt": "x", "model": "m" * 241}, "model"),
        ({"prompt": "x", "model": False}, "model"),
        ({"prompt": "x", "client_capabilities": ["c"] * 17}, "client_capabilities"),
        ({"prompt": "x", "chat_references": [{}] * 17}, "chat_references"),
        ({"prompt": "x", "chat_references": ["x"]}, "chat_references"),
        ({"prompt": "x", "display_prompt": ["x"]}, "display_prompt"),
    ],
)
def test_a_turn_that_cannot_be_read_names_its_field(fields, loc):
    error = refusal(read_turn, body(**fields))
    assert isinstance(error, Unprocessable)
    assert error.detail()[0]["loc"] == ["body", loc]


@pytest.mark.parametrize(
    "text", [b"a\\ud800", b"\\udc00", b"\\ud83d\\ud83d", b"\xed\xa0\x80", b"\xff"]
)
def test_text_that_is_not_unicode_is_unprocessable(text):
    error = refusal(lambda: read_turn(Body(b'{"prompt":"%b"}' % text)))
    assert error.status == 422


@pytest.mark.parametrize(
    ("raw", "half"),
    [
        (rb'{"prompt":"cut \ud83d"}', "ud83d"),
        (rb'{"prompt":"\ud83d and on"}', "ud83d"),
        (rb'{"prompt":"\uDC00\uD83D"}', "uDC00"),
        (rb'{"prompt":"\ud83d\ude00 \\\\\udc00"}', "udc00"),
        (rb'{"a":"\\ud83d","\ud83d":1}', "ud83d"),
    ],
)
def test_half_a_character_is_told_as_what_it_is(raw, half):
    message = refusal(Body, raw).message
    assert message.startswith(f"\\{half} is half of a surrogate pair")


@pytest.mark.parametrize("raw", [rb'{"prompt":"\\ud83d', rb'{"prompt":"\ud83d\ude00'])
def test_what_only_looks_like_half_a_character_is_not_blamed(raw):
    assert "half" not in refusal(Body, raw).message


def test_a_turn_keeps_blank_apart_from_absent_and_ignores_unknown_keys():
    assert read_turn(body(prompt="", model="", effort=None, new_key={"a": 1})) == PostTurn(
        prompt="", model="", effort=None
    )


def test_a_turn_names_each_file_once():
    assert read_turn(body(prompt="x", file_ids=["b", "a", "b"])).file_ids == ("b", "a")


@pytest.mark.parametrize(
    "fields",
    [
        {"cross_chat_envelope_id": "x"},
        {"cross_chat_exchange_id": "x"},
        {"secure_peer_envelope_id": "x"},
        {"purpose": "scheduled_job", "chat_references": [{}]},
    ],
)
def test_a_turn_may_not_claim_to_come_from_inside(fields):
    assert isinstance(refusal(read_turn, body(prompt="x", **fields)), BadRequest)


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"title": 5}, "title"),
        ({"title": "t" * 1001}, "title"),
        ({"cwd": "/a\0b"}, "cwd"),
        ({"system_prompt": "s" * 24_001}, "system_prompt"),
        ({"pinned": "yes"}, "pinned"),
        ({"cursor_permission_mode": "yolo"}, "cursor_permission_mode"),
        ({"claude_permission_mode": "yolo"}, "claude_permission_mode"),
        ({"codex_approval_policy": ""}, "codex_approval_policy"),
        ({"codex_sandbox_mode": "none"}, "codex_sandbox_mode"),
        ({"codex_approvals_reviewer": "me"}, "codex_approvals_reviewer"),
        ({"codex_permission_profile": "p" * 241}, "codex_permission_profile"),
        ({"provider_jobs_access": "all"}, "provider_jobs_access"),
    ],
)
@pytest.mark.parametrize("read", [read_new, read_patch])
def test_a_chat_field_that_cannot_be_used_is_named(read, fields, loc):
    error = refusal(read, body(**fields), BASE)
    assert (error.status, error.detail()[0]["loc"]) == (422, ["body", loc])


def test_a_new_chat_takes_what_the_desktop_client_sends():
    sent = body(
        title="T",
        folder="F",
        cwd="/w",
        backend="cursor",
        model=None,
        effort=None,
        system_prompt=None,
        codex_sandbox_mode=None,
        claude_permission_mode=None,
        cursor_permission_mode="plan",
        provider_session_id="abc",
        import_history=False,
        surprise=1,
    )
    assert read_new(sent, BASE) == CreateSession(
        title="T",
        folder="F",
        cwd="/w",
        backend="cursor",
        cursor_permission_mode="plan",
        provider_session_id="abc",
        import_history=False,
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"session_id": "a"}, "a"),
        ({"provider_session_id": "", "session_id": "a"}, "a"),
        ({"backend": "cursor", "cursor_session_id": "a", "claude_session_id": "b"}, "a"),
        ({"backend": "codex", "codex_thread_id": "a"}, "a"),
        ({"claude_session_id": "a"}, "a"),
        ({"codex_thread_id": "a"}, None),
        ({"backend": "other", "session_id": "a"}, "a"),
    ],
)
def test_the_provider_id_of_a_new_chat_has_several_names(fields, expected):
    assert read_new(body(**fields), BASE).provider_session_id == expected


@pytest.mark.parametrize("mode", [None, "", "  "])
def test_a_blank_cursor_permission_mode_is_the_default(mode):
    assert read_new(body(cursor_permission_mode=mode), BASE).cursor_permission_mode is None
    assert read_patch(body(cursor_permission_mode=mode), BASE).cursor_permission_mode is None


def test_a_patch_holds_only_what_was_sent_and_null_clears_only_what_can_be_cleared():
    patch = read_patch(body(title=None, archived=None, model=None, effort=""), BASE)
    assert patch == PatchSession(model=None, effort="")
    assert patch.title is UNSET


def test_a_page_has_bounds_and_defaults():
    assert read_page(Query({}), BASE) == ReadPage()
    assert read_page(
        Query({"after": "-4", "before": "9", "limit": "5000", "tail": "0", "compact": "TRUE"}),
        BASE,
    ) == ReadPage(after=0, before=9, limit=1000, tail=False, compact=True)
    assert read_page(Query({"limit": "0"}), BASE).limit == 1
    assert read_page(Query({"after": "9" * 19}), BASE).after == 2**53 - 1


def test_a_semantic_page_has_a_cursor_of_its_own():
    page = read_page(Query({"page_mode": "semantic", "semantic_before": "7", "before": "9"}), BASE)
    assert (page.semantic, page.before) == (True, 7)
    assert read_page(Query({"page_mode": "semantic", "before": "9"}), BASE).before == 9
    assert not read_page(Query({"semantic_before": "7"}), BASE).semantic
    assert refusal(read_page, Query({"page_mode": "other"}), BASE).status == 400


@pytest.mark.parametrize(
    "args", [{"after": "x"}, {"after": "1e3"}, {"limit": "9" * 30}, {"tail": "maybe"}]
)
def test_a_parameter_that_cannot_be_read_is_named(args):
    (name,) = args
    assert refusal(read_page, Query(args), BASE).loc == ("query", name)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"seconds": 0.5},
        {"seconds": 86_401},
        {"seconds": True},
        {"seconds": "60"},
        {"seconds": 60, "clock": "wall"},
        {"seconds": 60, "clock": ""},
    ],
)
def test_an_extension_has_bounds(fields):
    assert refusal(read_extension, body(**fields)).status == 422


def test_an_extension_concerns_both_clocks_unless_one_is_named():
    assert read_extension(body(seconds=60)) == (60.0, None)
    assert read_extension(body(seconds=1.5, clock="idle")) == (1.5, "idle")


def test_an_idempotency_key_counts_with_its_scope_and_body():
    first = read_idempotency("k", "POST /a", b"{}")
    assert first == read_idempotency("k", "POST /a", b"{}")
    assert first != read_idempotency("k", "POST /a", b"{ }")
    assert read_idempotency(None, "POST /a", b"{}") is None


@pytest.mark.parametrize("key", ["", " ", "a b", "ü", "k" * 256])
def test_an_idempotency_key_is_short_and_visible(key):
    assert refusal(read_idempotency, key, "POST /a", b"").loc == ("header", "idempotency-key")
