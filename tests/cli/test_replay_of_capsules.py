"""``agentsdock replay`` of recorded runs: a capsule brings its own backend, exit and stderr."""

import json
import pathlib

import pytest
from click.testing import CliRunner

from agentsdock.cli.main import main
from agentsdock.guard.contract import Report
from agentsdock.model.codes import Code
from agentsdock.testing.replay import replay
from agentsdock.turns.capsule import CapsuleWriter, compress

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
RUN = "run_0123456789abcdef"


def report(exit_code, *, killed=False):
    return Report(exit_code, killed, 0, (), 1.0, None, None, "subreaper")


@pytest.fixture
def record(tmp_path):
    def write(stream, exit_code, *, killed=False, code=None, stderr="", **facts):
        (tmp_path / "capsules").mkdir()
        path = tmp_path / "capsules" / f"{RUN}.capsule"
        facts = {"backend": "cursor", "resume_id": None, "max_bytes": 2**20, **facts}
        writer = CapsuleWriter(path, version="1", argv=("agent",), **facts)
        for start in range(0, len(stream), 500):
            writer.stdout(stream[start : start + 500])
        if exit_code != "crash":
            writer.close(report(exit_code, killed=killed), stderr, code)
        return path

    return write


def run(tmp_path, *args, recording=RUN):
    args = ["replay", str(recording), "--state-dir", str(tmp_path), "--json", *map(str, args)]
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), done.stderr


def stream(name):
    return (FIXTURES / name).read_bytes()


def test_a_run_is_found_by_its_id_compressed_or_not(tmp_path, record):
    path = record(stream("cursor/01-simple-success.jsonl"), 0)
    judgement, noted = run(tmp_path)
    assert (judgement["state"], noted) == ("succeeded", "")
    assert "exit_overrun" not in judgement["events"][-1]
    packed = compress(path)
    assert run(tmp_path)[0] == judgement
    assert run(tmp_path, recording=packed)[0] == judgement
    assert replay(packed).state == "succeeded"


def test_it_knows_its_backend_and_the_conversation_it_resumed(tmp_path, record):
    record(stream("codex/plain.jsonl"), 0, backend="codex")
    assert run(tmp_path)[0]["state"] == "succeeded"
    assert run(tmp_path, "--backend", "cursor")[0]["code"] == "unknown_schema"


def test_another_resumed_id_is_judged_as_it_was(tmp_path, record):
    record(stream("cursor/09-resume.jsonl"), 0, resume_id="other")
    assert run(tmp_path)[0]["code"] == "session_mismatch"


def test_it_knows_exit_and_stderr_and_options_overrule_both(tmp_path, record):
    record(b"", 1, stderr="no such model")
    judgement, _ = run(tmp_path)
    assert judgement["code"] == "nonzero_exit"
    assert "no such model" in judgement["events"][-1]["message"]
    assert run(tmp_path, "--exit-status", 0)[0]["code"] == "missing_init"
    other, _ = run(tmp_path, "--stderr", "out of luck")
    assert "out of luck" in other["events"][-1]["message"]


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (Code.STOPPED, "stopped"),
        (Code.SERVER_SHUTDOWN, "stopped"),
        (Code.TURN_TIMEOUT, "failed"),
        (Code.MEMORY_LIMIT, "failed"),
    ],
)
def test_what_ended_it_from_outside_ends_it_again(tmp_path, record, code, state):
    record(stream("cursor/14-missing-result.jsonl"), -15, killed=True, code=code)
    judgement, _ = run(tmp_path)
    assert (judgement["state"], judgement["code"]) == (state, code.value)
    assert run(tmp_path, "--exit-status", 0)[0]["code"] == "missing_result"


def test_a_cli_that_was_ended_after_its_result_has_succeeded(tmp_path, record):
    record(stream("cursor/01-simple-success.jsonl"), -9, killed=True)
    judgement, _ = run(tmp_path)
    assert judgement["state"] == "succeeded"
    assert judgement["events"][-1]["exit_overrun"] is True


def test_a_recording_that_breaks_off_is_judged_and_said_to(tmp_path, record):
    record(stream("cursor/14-missing-result.jsonl"), "crash")
    judgement, noted = run(tmp_path)
    assert judgement["code"] == "idle_timeout"
    assert "breaks off" in noted


def test_a_recording_that_was_cut_says_how_much_is_missing(tmp_path, record):
    data = stream("cursor/02-many-tools.jsonl")
    record(data, 0, max_bytes=1000)
    _, noted = run(tmp_path)
    assert str(len(data) - 1000) in noted


def test_a_damaged_capsule_is_bad_use(tmp_path):
    damaged = tmp_path / "x.capsule"
    damaged.write_bytes(b"agentsdock capsule 1\nnonsense")
    done = CliRunner().invoke(main, ["replay", str(damaged)])
    assert done.exit_code == 2
    assert "cannot be read" in done.stderr
