"""What is private leaves a recording, and what is left over is told."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdock.testing.scrubbing import Scrubber, find_leaks

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmN"
PLANTED = {
    "home folder": ("see /home/marisol/.config/x", "marisol"),
    "mac home": ("/Users/marisol/Library/Caches", "marisol"),
    "project": ("cd /srv/acme/billing && make", "/srv/acme"),
    "path in a search path": ("PATH=/usr/bin:/srv/acme/bin", "/srv/acme"),
    "mail": ("Author: M <marisol@acme-corp.io>", "marisol@acme-corp.io"),
    "anthropic key": ("key sk-ant-api03-" + "a1B2" * 8, "sk-ant-api03-" + "a1B2" * 8),
    "openai key": ("sk-proj-" + "Zz9" * 9, "sk-proj-" + "Zz9" * 9),
    "github token": ("ghp_" + "A1b2" * 9, "ghp_" + "A1b2" * 9),
    "gitlab token": ("glpat-" + "A1b2" * 5, "glpat-" + "A1b2" * 5),
    "slack token": ("xoxb-1234567890-abcdefghij", "xoxb-1234567890-abcdefghij"),
    "aws id": ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    "google key": ("AIza" + "Sy9" * 11, "AIza" + "Sy9" * 11),
    "web token": (f"got {JWT}.", JWT),
    "bearer": ("Authorization: Bearer abcdef123456", "abcdef123456"),
    "named secret": ("export DEPLOY_TOKEN=tr0ub4dor-3", "tr0ub4dor-3"),
    "password": ("password: correct-horse", "correct-horse"),
    "password in an address": ("postgres://bill:hunter2@db/x", "bill:hunter2"),
    "private key": (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----",
        "MIIEabc",
    ),
    "address": ("connect to 10.20.30.40 port 22", "10.20.30.40"),
    "host": ("ssh build7.corp", "build7.corp"),
    "uuid": ("id 3f2b8c1e-9d4a-4c6b-8e2f-0a1b2c3d4e5f", "3f2b8c1e-9d4a-4c6b-8e2f-0a1b2c3d4e5f"),
    "message id": ("msg_01XYZabc123def", "msg_01XYZabc123def"),
    "call id": ("call_Ab12Cd34Ef", "call_Ab12Cd34Ef"),
    "commit": ("HEAD is 9fceb02d0ae598e95dc970b74767f19372d61af8", "9fceb02d0ae598e95dc970b7"),
    "opaque": ("sig " + "Ab3/Xy9+" * 8, "Ab3/Xy9+" * 8),
}
every_kind = pytest.mark.parametrize("text, secret", PLANTED.values(), ids=PLANTED)


def as_line(text, *, ascii_only=True):
    return json.dumps({"type": "assistant", "n": 1.50, "text": text}, ensure_ascii=ascii_only)


@every_kind
def test_each_kind_of_private_text_is_replaced_in_json_and_in_prose(text, secret):
    for line in (as_line(text), as_line(json.dumps({"inner": text})), text.replace("\n", " ")):
        scrubber = Scrubber()
        out = scrubber.stream(line.encode())
        assert secret not in out.decode()
        assert find_leaks(out, scrubber.replaced) == []


@every_kind
def test_each_kind_is_found_where_it_was_left(text, secret):
    assert find_leaks(as_line(text).encode(), {})
    told = str(find_leaks(as_line(text).encode(), {secret: "x"})[0])
    assert secret not in told


@every_kind
def test_a_secret_in_pieces_is_found(text, secret):
    if "\n" in text:
        pytest.skip("it is found by its first line")
    middle = text.index(secret) + len(secret) // 2
    pieces = [text[: middle - 1], text[middle - 1 : middle], text[middle:]]
    stream = "\n".join(as_line(piece) for piece in pieces).encode()
    assert find_leaks(stream, {secret: "x"})


@pytest.mark.parametrize(
    "spelled",
    [
        "Marisol",
        "MARISOL",
        "bWFyaXNvbDpwYXNz",
        "eG1hcmlzb2w6cGFzcw==",
        "6d617269736f6c",
        "-home-marisol-app",
        "%6Darisol marisol",
    ],
)
def test_a_private_name_is_found_in_other_spellings(spelled):
    assert find_leaks(as_line(f"x {spelled} y").encode(), {"marisol": "x"})


def test_a_key_and_its_value_are_a_secret_together():
    line = '{"api_key":"plain0word","input_tokens": 12345678}'
    scrubber = Scrubber()
    out = scrubber.stream(line.encode())
    assert json.loads(out) == {"api_key": "secret-1", "input_tokens": 12345678}


def test_the_same_text_gets_the_same_stand_in_everywhere():
    lines = [as_line("call_Ab12Cd34Ef"), as_line("call_Zz99Zz99Zz"), as_line("call_Ab12Cd34Ef")]
    out = Scrubber().stream("\n".join(lines).encode()).decode().split("\n")
    assert out[0] == out[2] != out[1]


def test_a_name_that_one_line_gives_away_is_replaced_in_the_lines_before():
    lines = [as_line("Hello Marisol, hello marisol"), as_line("/home/marisol/x")]
    out = Scrubber().stream("\n".join(lines).encode()).decode()
    assert "marisol" not in out
    assert "/home/user/x" in out


def test_private_texts_have_the_stand_ins_that_they_were_given():
    out = Scrubber({"Project Orion": "private-1"}).stream(as_line("on Project Orion.").encode())
    assert json.loads(out)["text"] == "on private-1."


@pytest.mark.parametrize(
    "line",
    [
        '{"b": 1.50, "a":"\\u2028 \\ud83c", "a" :"x", "b": null}',
        '{"id":"item_0","type":"web_search","id":"ws_1"}',
        '{"text":"und/oder, 1/2, /usr/bin/python3, http://127.0.0.1:8099/v1/messages"}',
        '{"tool_use_id":"tool_use","usage":{"input_tokens":1234567890,"cache_read":0}}',
        '{"torn":"at the e',
        '{"text":"password: required, key: optional, token=None"}',
        "not JSON at all",
        "",
    ],
)
def test_what_is_nobody_s_stays_byte_for_byte(line):
    assert Scrubber().stream(line.encode()) == line.encode()


def test_bytes_that_are_no_text_stay():
    data = b'{"text":"\xff\xfe"}\n\xc3('
    assert Scrubber().stream(data) == data


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.text() | st.integers() | st.booleans(), st.lists, max_leaves=8))
def test_json_stays_json_of_the_same_shape(value):
    def shape(one):
        return [shape(item) for item in one] if isinstance(one, list) else type(one)

    for ascii_only in (True, False):
        line = json.dumps(value, ensure_ascii=ascii_only)
        out = Scrubber({"secretword": "w"}).stream(line.encode())
        assert shape(json.loads(out)) == shape(value)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([text for text, _ in PLANTED.values()]), max_size=5), st.randoms())
def test_scrubbing_twice_changes_nothing_more(texts, random):
    random.shuffle(texts)
    once = Scrubber().stream("\n".join(as_line(text) for text in texts).encode())
    assert Scrubber().stream(once) == once
