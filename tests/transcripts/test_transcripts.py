"""Transcripts of the CLIs: what was said, once, in order, whatever else the file holds."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdock.transcripts import claude, codex, files, reading
from agentsdock.transcripts.reading import Transcript, stamp


def told(lines, read=claude.read, limit=100, chars=1000):
    transcript = Transcript(read, limit, chars)
    for line in lines:
        transcript.add(line if isinstance(line, bytes) else json.dumps(line).encode())
    return transcript


def texts(transcript):
    return [(said.role, said.text) for said in transcript.items]


def entry(role, text, uuid=None, **more):
    content = text if role == "user" else [{"type": "text", "text": text}]
    extra = {"uuid": uuid} if uuid else {}
    message = {"role": role, "content": content}
    return (
        {"type": role, "message": message, "timestamp": "2026-01-02T03:04:05.678Z"} | extra | more
    )


def test_user_and_assistant_texts_are_taken_with_their_times():
    transcript = told([entry("user", "hello"), entry("assistant", "hi")])
    assert texts(transcript) == [("user", "hello"), ("assistant", "hi")]
    assert {said.ts for said in transcript.items} == {"2026-01-02T03:04:05Z"}


def test_each_uuid_counts_once_and_equal_texts_of_others_stay():
    lines = [
        entry("user", "again", "a"),
        entry("assistant", "one", "b"),
        entry("user", "again", "c"),
        entry("user", "again", "a"),
        entry("assistant", "one", "b"),
    ]
    transcript = told(lines)
    assert texts(transcript) == [("user", "again"), ("assistant", "one"), ("user", "again")]
    assert transcript.unused["repeated"] == 2


def test_repeats_are_known_among_a_bounded_number(monkeypatch):
    monkeypatch.setattr(reading, "REMEMBERED", 3)
    transcript = told([entry("user", str(n), str(n)) for n in (1, 2, 3, 1, 4, 5, 6, 1)])
    assert [text for _, text in texts(transcript)] == ["1", "2", "3", "4", "5", "6", "1"]
    assert len(transcript._seen) == 3


def test_what_the_cli_or_this_server_added_is_left_out():
    wrapped = "[AgentsDock provider instructions]\nx\n\n[Current user prompt]\nthe real one"
    tool_result = [{"type": "tool_result", "content": "x"}]
    lines = [
        entry("user", "<command-name>/clear</command-name>"),
        entry("user", "aside", isSidechain=True),
        entry("user", "meta", isMeta=True),
        entry("user", wrapped),
        {"type": "user", "message": {"role": "user", "content": tool_result}},
        {"type": "summary", "summary": "s"},
    ]
    assert texts(told(lines)) == [("user", "the real one")]


def test_a_codex_thread_is_read_by_its_messages():
    def item(role, text, kind="input_text"):
        payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        return {"timestamp": "2026-01-02T03:04:05Z", "type": "response_item", "payload": payload}

    lines = [
        {"type": "session_meta", "payload": {"id": "x"}},
        item("user", "<environment_context>...</environment_context>"),
        item("developer", "rules"),
        item("user", "hello"),
        item("assistant", "hi", "output_text"),
        {"type": "event_msg", "payload": {"type": "agent_message", "message": "hi"}},
    ]
    assert texts(told(lines, codex.read)) == [("user", "hello"), ("assistant", "hi")]


ODD = [
    b"null",
    b"7",
    b"[]",
    b'{"type":"user"}',
    b'{"type":"user","message":{"content":7}}',
    b'{"type":"user","message":[]}',
    b"{not json",
    b"\xff\xfe",
    b"[" * 100_000,
    b"",
]


def test_odd_lines_are_counted_and_the_good_ones_taken():
    lines = [*ODD, entry("user", "hello"), *ODD]
    transcript = told(lines)
    assert texts(transcript) == [("user", "hello")]
    assert sum(transcript.unused.values()) == 2 * (len(ODD) - 1)


def test_half_an_emoji_is_replaced_and_a_whole_one_kept():
    line = b'{"type":"user","message":{"content":"a \\ud83d b \\ud83d\\ude00"}}'
    assert texts(told([line])) == [("user", "a \ufffd b \U0001f600")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        (None, None),
    ],
)
def test_times_become_utc_or_nothing(value, expected):
    assert stamp(value) == expected


def test_only_the_newest_are_kept_and_each_is_bounded():
    lines = [entry("user", f"{n} " + "x" * 50) for n in range(10)]
    transcript = told(lines, limit=3, chars=10)
    assert [text[:1] for _, text in texts(transcript)] == ["7", "8", "9"]
    assert all(len(text) <= 10 for _, text in texts(transcript))


@given(st.lists(st.binary(max_size=80), max_size=20))
def test_no_line_raises(lines):
    told(lines)
    told(lines, codex.read)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "message", "content", "role", "text", "payload", "uuid"]),
                inner | st.sampled_from(["user", "assistant", "message", "response_item", "text"]),
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_no_json_raises(value):
    told([value])
    told([value], codex.read)


def test_lines_end_where_they_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"short\n" + b"x" * 25 + b"\nnext\ntorn")
    assert list(files.lines(path)) == [b"short\n", None, b"next\n"]
    path.write_bytes(b"x" * 25)
    assert list(files.lines(path)) == [None]


def test_the_newest_continuation_is_found_and_links_are_not_followed(tmp_path):
    root = tmp_path / "projects"
    for age, folder in enumerate(("new", "old")):
        (root / folder).mkdir(parents=True)
        path = root / folder / "abc.jsonl"
        path.write_text("{}\n")
        os.utime(path, (1000 - age, 1000 - age))
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "abc.jsonl").write_text("{}\n")
    (root / "file").mkdir()
    (root / "file" / "abc.jsonl").symlink_to(tmp_path / "elsewhere" / "abc.jsonl")
    assert files.find_claude(root, "abc") == root / "new" / "abc.jsonl"
    assert files.find_claude(root, "other") is None
    assert files.find_claude(tmp_path / "none", "abc") is None


def test_claude_is_asked_for_the_folder_of_the_chat(tmp_path):
    cwd = tmp_path / "my.repo"
    cwd.mkdir()
    folder = files.claude_folder(tmp_path / "projects", str(cwd))
    assert folder.name.endswith("-my-repo")
    folder.mkdir(parents=True)
    (folder / "abc.jsonl").write_text("{}\n")
    assert files.find_claude(tmp_path / "projects", "abc", str(cwd)) is not None
    assert files.find_claude(tmp_path / "projects", "abc", str(tmp_path)) is None


def test_codex_threads_are_found_by_their_day(tmp_path):
    day = tmp_path / "2026" / "01" / "02"
    day.mkdir(parents=True)
    path = day / "rollout-2026-01-02T03-04-05-abc.jsonl"
    path.write_text("{}\n")
    assert files.find_codex(tmp_path, "abc") == path
    assert files.find_codex(tmp_path, "bc") is None


def test_a_time_that_is_none_is_that_of_the_entry_before():
    lines = [entry("user", "first"), entry("assistant", "second", timestamp=7)]
    lines += [entry("user", "third", timestamp="yesterday"), entry("assistant", "last")]
    lines[0] = entry("user", "first", timestamp="2026-01-01")
    stamps = [said.ts for said in told(lines).items]
    assert stamps == ["2026-01-01T00:00:00Z"] * 3 + ["2026-01-02T03:04:05Z"]


def test_repeats_are_known_among_the_latest(monkeypatch):
    monkeypatch.setattr(reading, "REMEMBERED", 3)
    said = [entry("user", f"{n}", uuid=f"{n}") for n in range(5)]
    found = told([*said, said[4], said[2], said[0]])
    assert [text for _, text in texts(found)] == ["0", "1", "2", "3", "4", "0"]
    assert found.unused["repeated"] == 2
