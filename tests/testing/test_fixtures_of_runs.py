"""``agentsdock export-fixture`` and ``rejudge``: recordings that are shown, and judged again."""

import json
import pathlib

import pytest
from click.testing import CliRunner

from agentsdock.cli.main import main
from agentsdock.guard.contract import Report
from agentsdock.model.codes import Code
from agentsdock.testing.replay import read_recording, replay
from agentsdock.turns.capsule import CapsuleWriter, compress

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
RUN = "run_0123456789abcdef"


@pytest.fixture
def record(tmp_path):
    def write(stream, exit_code=0, *, run=RUN, code=None, stderr="", **facts):
        path = tmp_path / "capsules" / f"{run}.capsule"
        facts = {"backend": "claude", "resume_id": None, "max_bytes": 2**24, **facts}
        writer = CapsuleWriter(path, version="2.0", argv=("agent",), **facts)
        writer.stdout(stream)
        if exit_code != "crash":
            report = Report(exit_code, code is not None, 0, (), 1.0, None, None, "subreaper")
            writer.close(report, stderr, code)
        return path

    return write


def run(tmp_path, command, *args):
    return CliRunner().invoke(main, [command, *map(str, args), "--state-dir", str(tmp_path)])


def lines(*texts, session="3f2b8c1e-9d4a-4c6b-8e2f-0a1b2c3d4e5f", cwd="/srv/acme/billing"):
    told = [{"type": "system", "subtype": "init", "session_id": session, "cwd": cwd, "model": "m"}]
    for text in texts:
        message = {"id": "msg_01abcdefgh", "content": [{"type": "text", "text": text}]}
        told.append({"type": "assistant", "session_id": session, "message": message})
    result = {"type": "result", "subtype": "success", "is_error": False, "result": texts[-1]}
    told.append({**result, "session_id": session})
    return "".join(f"{json.dumps(one)}\n" for one in told).encode()


def test_an_exported_run_tells_nothing_of_where_it_ran_and_is_judged_as_before(tmp_path, record):
    capsule = record(lines("Marisol's /srv/acme/billing/a.py is done.", "at /home/marisol/x"))
    done = run(tmp_path, "export-fixture", RUN, "--out", tmp_path / "out", "--name", "done")
    assert done.exit_code == 0, done.output
    stream = (tmp_path / "out/done.jsonl").read_text()
    facts = (tmp_path / "out/done.json").read_text()
    for word in ("acme", "arisol", "3f2b8c1e", "msg_01abc"):
        assert word not in stream + facts
    assert "/workspace/a.py" in stream
    before, after = replay(capsule), replay(tmp_path / "out/done.jsonl")
    assert (after.state, after.code, after.tools) == (before.state, before.code, before.tools)
    assert [one["type"] for one in after.events] == [one["type"] for one in before.events]
    assert json.loads(facts)["expected"]["result_text"] == after.result_text


@pytest.mark.parametrize(
    "exit_code, code, verdict",
    [
        (0, None, ("succeeded", None)),
        (1, None, ("failed", "nonzero_exit")),
        (None, Code.STOPPED, ("stopped", "stopped")),
    ],
)
def test_a_fixture_knows_how_its_run_ended(tmp_path, record, exit_code, code, verdict):
    stream = lines("one") if exit_code == 0 else lines("one").split(b'{"type": "result"')[0]
    compress(record(stream, exit_code, code=code, stderr="no such thing"))
    done = run(tmp_path, "export-fixture", RUN, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    recording = read_recording(tmp_path / f"{RUN}.jsonl")
    assert (recording.backend, recording.stderr) == ("claude", "no such thing")
    judgement = recording.judge()
    assert (judgement.state, judgement.code) == verdict


@pytest.mark.parametrize("cli, name", [("claude", "resume"), ("codex", "resume")])
def test_a_resumed_conversation_keeps_its_id_under_another_name(tmp_path, record, cli, name):
    rows = json.loads((FIXTURES / cli / "index.json").read_text())
    (row,) = [row for row in rows if row["file"] == f"{name}.jsonl"]
    resumed = row["resumed"]
    record((FIXTURES / cli / f"{name}.jsonl").read_bytes(), backend=cli, resume_id=resumed)
    done = run(tmp_path, "export-fixture", RUN, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    exported = tmp_path / "out" / f"{RUN}.jsonl"
    assert resumed not in exported.read_text()
    assert replay(exported).state == "succeeded"


def test_what_cannot_be_scrubbed_is_not_written(tmp_path, record):
    pieces = lines("here is sk-ant-api03-a1B2", "c3D4e5F6g7H8i9J0, keep it")
    record(pieces)
    done = run(tmp_path, "export-fixture", RUN, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "private text" in done.output
    assert "c3D4e5F6" not in done.output
    assert not (tmp_path / "out").exists()


def test_words_of_one_s_own_are_replaced_too(tmp_path, record):
    record(lines("The Orion project and ORION."))
    done = run(tmp_path, "export-fixture", RUN, "--out", tmp_path, "--private", "Orion")
    assert done.exit_code == 0, done.output
    told = replay(tmp_path / f"{RUN}.jsonl")
    assert told.result_text == "The private-1 project and private-1."


def test_secrets_of_the_settings_are_known(tmp_path, record, monkeypatch):
    monkeypatch.setenv("DEPLOY_TOKEN", "plainwordsecret")
    (tmp_path / "token").write_text("serverwordtoken\n")
    record(lines("It is plainwordsecret, or serverwordtoken."))
    done = run(tmp_path, "export-fixture", RUN, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "wordsecret" not in (tmp_path / f"{RUN}.jsonl").read_text()
    assert "wordtoken" not in (tmp_path / f"{RUN}.jsonl").read_text()


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", ""])
def test_a_name_stays_in_its_folder(tmp_path, record, name):
    record(lines("x"))
    done = run(tmp_path, "export-fixture", RUN, "--out", tmp_path, "--name", name or " ")
    assert done.exit_code == 2


def test_nothing_is_overwritten(tmp_path, record):
    record(lines("x"))
    assert run(tmp_path, "export-fixture", RUN, "--out", tmp_path).exit_code == 0
    again = run(tmp_path, "export-fixture", RUN, "--out", tmp_path)
    assert again.exit_code == 1
    assert "--name" in again.output


def test_a_recording_that_breaks_off_or_a_bare_stream_is_no_fixture(tmp_path, record):
    record(lines("x"), "crash")
    assert "breaks off" in run(tmp_path, "export-fixture", RUN, "--out", tmp_path).output
    bare = tmp_path / "bare.jsonl"
    bare.write_bytes(lines("x"))
    assert "capsule" in run(tmp_path, "export-fixture", bare, "--out", tmp_path / "o").output


def test_damaged_facts_are_bad_use(tmp_path, record):
    record(lines("x"))
    run(tmp_path, "export-fixture", RUN, "--out", tmp_path)
    facts = tmp_path / f"{RUN}.json"
    facts.write_text(facts.read_text().replace('"exit_status": 0', '"exit_status": "no"'))
    done = CliRunner().invoke(main, ["replay", str(tmp_path / f"{RUN}.jsonl")])
    assert done.exit_code == 2
    assert "exit_status" in done.output


def test_rejudging_tells_only_what_has_changed(tmp_path, record):
    record(lines("x"), run="run_000000000000000a")
    record(lines("x"), 0, run="run_000000000000000b", code=Code.BAD_LINE)
    record(lines("x"), "crash", run="run_000000000000000c")
    compress(tmp_path / "capsules/run_000000000000000a.capsule")
    done = run(tmp_path, "rejudge")
    assert done.exit_code == 1
    assert "run_000000000000000b  claude 2.0  bad_line -> succeeded" in done.output
    assert "run_000000000000000a" not in done.output
    assert "1 same, 1 changed, 1 passed over" in done.output
    one = run(tmp_path, "rejudge", "run_000000000000000a", "--json")
    assert one.exit_code == 0
    assert json.loads(one.output)["outcome"] == "same"


def test_rejudging_goes_on_behind_a_damaged_recording(tmp_path, record):
    record(lines("x"))
    (tmp_path / "capsules/run_000000000000000d.capsule").write_bytes(b"nonsense")
    (tmp_path / "capsules/run_000000000000000e.capsule").write_bytes(b"agentsdock capsule 1\nx")
    done = run(tmp_path, "rejudge")
    assert done.exit_code == 0
    assert "1 same, 0 changed, 2 passed over" in done.output
