"""Runs of the real CLIs that were exported from a server: judged today as on the day."""

import json
from pathlib import Path

import pytest

from agentsdock.testing.fixture import differences
from agentsdock.testing.replay import FACTS_KEY, replay

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
STREAMS = sorted(RUNS.glob("*.jsonl"))


def test_there_are_some_and_each_has_its_facts():
    assert len(STREAMS) >= 7
    for stream in STREAMS:
        assert json.loads(stream.with_suffix(".json").read_bytes())[FACTS_KEY] == 1


@pytest.mark.parametrize("chunk", [None, 1, 977])
@pytest.mark.parametrize("stream", STREAMS, ids=lambda path: path.stem)
def test_each_is_judged_as_its_facts_say_however_it_arrives(stream, chunk):
    expected = json.loads(stream.with_suffix(".json").read_bytes())["expected"]
    assert differences(expected, replay(stream, chunk=chunk)) == []
