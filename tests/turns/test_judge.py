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
