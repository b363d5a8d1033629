"""The authored Cursor streams against their expectations, at any split."""

import json
import pathlib
import random

import pytest

from agentsdock.model.codes import Code
from agentsdock.turns.judge import Judgement, judge

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "cursor"
ROWS = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))["fixtures"]
WORDS = {"approval-requested": "approval_required"}


def code(word: str | None) -> str | None:
    return None if word is None else WORDS.get(word, word.replace("-", "_"))


def play(row: dict, chunk: int | None = None, **options: object) -> Judgement:
    hint = row["argv_hint"].split()
    resume_id = hint[hint.index("--resume") + 1] if "--resume" in hint else None
    return judge(
        "cursor",
        (FIXTURES / row["file"]).read_bytes(),
        exit_status=row["exit_status"],
        stderr=row["stderr"],
        resume_id=resume_id,
        chunk=chunk,
        **options,
    )


def row_of(number: str) -> dict:
    return next(row for row in ROWS if row["file"].startswith(number))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"][:2])
def test_a_fixture_is_judged_as_expected(row):
    judged = play(row)
    assert judged.state == row["final_state"]
    assert judged.is_error == row["is_error"]
    assert judged.code == code(row["error_code"])
    assert judged.result_text == row["final_text"]
    assert judged.session_id == row["session_id"]
    if row["assistant_segments"] is not None:
        assert judged.segments == row["assistant_segments"]
    told = {name: judged.tools[name] for name in ("ok", "failed", "rejected", "unfinished")}
    assert {name: count for name, count in told.items() if count} == row["tool_outcomes"]
    assert judged.tools["total"] == row["tool_calls"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"][:2])
def test_the_split_of_the_bytes_changes_nothing(row):
    whole = play(row)
    data = (FIXTURES / row["file"]).read_bytes()
    if len(data) < 64_000:
        assert play(row, chunk=1) == whole
    chance = random.Random(row["file"])
    for _ in range(5):
        assert play(row, chunk=chance.randrange(2, min(len(data), 200_000) + 3)) == whole


class TestStaysOpen:
    """A CLI that neither says more nor exits is ended at once by the limit that is due."""

    def test_after_a_success_it_overran(self):
        row = row_of("01") | {"exit_status": None}
        judged = play(row)
        assert (judged.state, judged.code) == ("succeeded", None)
        assert judged.result_text == row["final_text"]
        assert judged.events[-1]["exit_overrun"] is True

    def test_after_an_error_it_is_that_error(self):
        assert play(row_of("11") | {"exit_status": None}).code == "logical_error"

    def test_in_mid_turn_it_is_idle(self):
        assert play(row_of("14") | {"exit_status": None}).code == "idle_timeout"

    def test_with_an_open_question_it_wants_approval(self):
        judged = play(row_of("23") | {"exit_status": None})
        assert judged.code == "approval_required"
        assert "shellRequestQuery" in judged.events[-1]["message"]

    def test_before_init_it_did_not_start(self):
        assert play(row_of("40") | {"exit_status": None}).code == "startup_timeout"


class TestEndedFromOutside:
    """A recorded run whose ending no stream shows."""

    @pytest.mark.parametrize(
        "code, state",
        [
            (Code.STOPPED, "stopped"),
            (Code.SERVER_SHUTDOWN, "stopped"),
            (Code.SERVER_RESTART, "stopped"),
            (Code.TURN_TIMEOUT, "failed"),
            (Code.STORAGE_FULL, "failed"),
        ],
    )
    def test_it_ends_so_again(self, code, state):
        judged = play(row_of("14") | {"exit_status": None}, ended_by=code)
        assert (judged.code, judged.state) == (code, state)

    def test_an_ending_that_the_stream_must_show_is_not_taken_on_trust(self):
        judged = play(row_of("01") | {"exit_status": None}, ended_by=Code.UNKNOWN_SCHEMA)
        assert judged.state == "succeeded"

    def test_the_stream_s_own_ending_comes_first(self):
        judged = play(row_of("25") | {"exit_status": None}, ended_by=Code.STOPPED)
        assert judged.code == "bad_line"


def test_a_signal_is_told_by_its_name():
    assert play(row_of("26")).events[-1]["signal"] == "SIGKILL"


def test_a_cut_last_line_is_told():
    assert "cut" in play(row_of("26")).events[-1]["detail"]


def test_a_resume_that_gets_another_session_is_a_mismatch():
    judged = judge(
        "cursor",
        (FIXTURES / "09-resume.jsonl").read_bytes(),
        exit_status=0,
        resume_id="11111111-2222-4333-8444-555555555555",
    )
    assert (judged.code, judged.session_id) == ("session_mismatch", None)


def test_events_are_numbered_from_one_and_end_with_the_terminal_one():
    events = play(row_of("02")).events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["type"] for event in events].count("turn_finished") == 1
    assert events[-1]["type"] == "turn_finished"


def test_bad_use_is_refused():
    with pytest.raises(ValueError, match="nobody"):
        judge("nobody", b"", exit_status=0)
    with pytest.raises(ValueError, match="chunk"):
        judge("cursor", b"", exit_status=0, chunk=0)
