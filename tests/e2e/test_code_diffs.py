"""What a client sees of the files that a turn changed, with a real server, CLI and git."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import psutil
import pytest
import trio
from chaos.cli_program import install_cli
from serving_house import House

from agentsdock.client.errors import ApiError
from agentsdock.client.http import Client
from agentsdock.testing.server import running_server

TOKEN = "diffs-SECRET-3"
MARK = "ran-in-the-server"


@pytest.fixture
def repo(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q")
    (repo / "a.txt").write_text("one\n")
    (repo / "theirs.txt").write_text("one\n")
    commit(repo)
    return repo


@pytest.fixture
def other(tmp_path):
    """A repository that has nothing to do with any turn."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "a.txt").write_text("other\n")
    commit(other)
    return other


@pytest.fixture
def environment(tmp_path, repo, other):
    """Where whoever started the server was at work in the other repository."""
    program = install_cli(tmp_path, pathlib.Path(__file__).with_name("editing_cli.py"))
    return {
        "HOME": str(tmp_path),
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git/index"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git/objects"),
        "CURSOR_BIN": str(program),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(repo),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }


@pytest.fixture
def live_server(environment, tmp_path):
    with running_server(tmp_path / "state", environment, token=TOKEN) as server:
        yield server


def git(repo, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    env = {"PATH": os.environ["PATH"], "HOME": str(repo.parent)}
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=repo, env=env, check=True, capture_output=True).stdout


def commit(repo):
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "work")


async def until(house, chat, kind, run=None):
    """The timeline up to the first event of a kind (of a run)."""
    seen = []
    async with house.follow(chat) as socket:
        while True:
            seen.append(json.loads(await socket.get_message()))
            if seen[-1]["type"] == kind and run in (None, seen[-1].get("run_id")):
                return seen


async def play(house, chat, orders):
    run = await house.turn(chat, f"[[fake {orders}]]")
    seen = await until(house, chat, "turn_finished", run)
    return [event for event in seen if event.get("run_id") == run]


async def patch(house, chat, run):
    return await house.http.get(f"/api/sessions/{chat}/diffs/{run}")


def no_snapshot(tmp_path):
    return not list((tmp_path / "state/snapshots").glob("*/*"))


async def test_a_turn_tells_what_its_edit_tools_changed_before_it_ends(house, repo, tmp_path):
    chat = await house.chat()
    (repo / "a.txt").write_text("one\nnot committed\n")
    events = await play(house, chat, "edit=a.txt,new.txt shell=theirs.txt refused=b.txt")
    types = [event["type"] for event in events]
    assert types[-2:] == ["code_diff", "turn_finished"]
    diff, terminal = events[-2:]
    assert "code_diff_missing" not in terminal
    assert diff["backend"] == "cursor"
    assert diff["repository_root"] == str(repo)
    assert diff["attribution"] == "agent_tool_paths"
    assert diff["attributed_paths"] == ["a.txt", "new.txt"]
    assert diff["diff_files"] == [
        {"path": "a.txt", "additions": 1, "deletions": 0, "binary": False},
        {"path": "new.txt", "additions": 1, "deletions": 0, "binary": False},
    ]
    assert (diff["files_changed"], diff["additions"], diff["deletions"]) == (2, 2, 0)
    answer = await patch(house, chat, diff["run_id"])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/x-diff; charset=utf-8"
    assert len(answer.content) == diff["byte_count"]
    assert " not committed\n+a line by the agent\n" in answer.text
    async with Client(house.server.url, TOKEN) as client:
        assert await client.diff(chat, diff["run_id"]) == answer.content
        with pytest.raises(ApiError, match="diff not found"):
            await client.diff(chat, "run_0")
    fork = await house.http.post(f"/api/sessions/{chat}/fork", json={})
    child = fork.json()["session"]["id"]
    assert (await patch(house, child, diff["run_id"])).content == answer.content
    other = await house.chat()
    missing = [(other, diff["run_id"]), (chat, "run_0"), (chat, "a b"), ("sess_0", diff["run_id"])]
    for place in missing:
        assert (await patch(house, *place)).status_code == 404
    await house.http.delete(f"/api/sessions/{chat}")
    assert (await patch(house, chat, diff["run_id"])).status_code == 404
    assert (await patch(house, child, diff["run_id"])).content == answer.content


async def test_a_turn_without_edits_or_without_a_repository_has_no_diff(house, repo, tmp_path):
    chat = await house.chat()
    for orders in ("shell=a.txt", "refused=a.txt", ""):
        events = await play(house, chat, orders)
        assert not [event for event in events if event["type"] == "code_diff"]
        assert "code_diff_missing" not in events[-1]
    folder = tmp_path / "plain"
    folder.mkdir()
    asked = {"backend": "cursor", "cwd": str(folder)}
    chat = (await house.http.post("/api/sessions", json=asked)).json()["session"]["id"]
    events = await play(house, chat, "edit=a.txt")
    assert events[-1]["type"] == "turn_finished"
    assert "code_diff" not in [event["type"] for event in events]
    assert "code_diff_missing" not in events[-1]


@pytest.mark.parametrize("orders", ["edit=a.txt exit=3", "edit=a.txt hang=1"])
async def test_a_turn_that_fails_or_is_stopped_has_its_diff_all_the_same(house, orders):
    chat = await house.chat()
    run = await house.turn(chat, f"[[fake {orders}]]")
    if "hang" in orders:
        await until(house, chat, "tool_finished")
        await house.http.post(f"/api/sessions/{chat}/stop")
    events = [e for e in await until(house, chat, "turn_finished") if e.get("run_id") == run]
    types = [event["type"] for event in events]
    assert types.count("code_diff") == 1
    failed = [] if "hang" in orders else ["error"]
    assert types[types.index("code_diff") :] == ["code_diff", *failed, "turn_finished"]


async def test_commits_of_the_agent_never_meet_a_lock_of_ours(house, repo):
    chat = await house.chat()
    (repo / "a.txt").write_text("changed, so that there is something to note\n")
    events = await play(house, chat, "edit=a.txt commits=50")
    assert events[-1]["code"] is None
    assert events[-2]["additions"] == 1
    assert git(repo, "rev-list", "--count", "HEAD").strip() == b"51"
    assert not list((repo / ".git").rglob("*.lock"))


def tree(folder):
    """Every file below, by content and time."""
    return {
        str(path): (path.lstat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


async def test_the_git_folder_is_byte_for_byte_as_it_was_after_a_turn(house, repo, tmp_path):
    chat = await house.chat()
    (repo / "untracked.txt").write_text("new\n")
    (repo / "a.txt").write_text("changed\n")
    before = tree(repo / ".git")
    events = await play(house, chat, "edit=a.txt")
    assert events[-2]["type"] == "code_diff"
    assert tree(repo / ".git") == before
    with trio.fail_after(10):
        while not no_snapshot(tmp_path):
            await trio.sleep(0.02)


async def test_no_program_of_a_repositorys_configuration_runs(house, repo, tmp_path):
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\nenv > {tmp_path / MARK}\ncat\n")
    evil.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "reference-transaction", "post-checkout"):
        (hooks / name).symlink_to(evil)
    for key in (
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "core.fsmonitor",
        "diff.evil.textconv",
        "diff.evil.command",
        "diff.external",
        "core.sshCommand",
        "core.alternateRefsCommand",
        "core.pager",
        "core.editor",
        "credential.helper",
        "uploadpack.packObjectsHook",
    ):
        git(repo, "config", key, str(evil))
    git(repo, "config", "core.hooksPath", str(hooks))
    git(repo, "config", "filter.evil.required", "true")
    git(repo, "config", "include.path", "more")
    (repo / ".git/more").write_text(f'[alias]\n\tls-files = "!{evil}"\n')
    (repo / ".gitattributes").write_text("*.txt diff=evil\n*.dat filter=evil diff=evil\n")
    (repo / "a.dat").write_text("data\n")
    chat = await house.chat()
    events = await play(house, chat, "edit=a.txt,a.dat")
    diff = events[-2]
    assert [file["path"] for file in diff["diff_files"]] == ["a.txt"]
    assert diff["left_out"] == [{"path": "a.dat", "reason": "filtered"}]
    assert not (tmp_path / MARK).exists()
    git(repo, "status")
    assert (tmp_path / MARK).exists(), "these settings do run programs elsewhere"


async def test_git_variables_of_the_server_aim_at_nothing(house, repo, other):
    before = tree(other)
    events = await play(house, await house.chat(), "edit=a.txt commits=1")
    assert events[-2]["repository_root"] == str(repo)
    assert events[-2]["additions"] == 1
    assert git(repo, "rev-list", "--count", "HEAD").strip() == b"2", "nor does the CLI have them"
    assert tree(other) == before


async def test_a_server_killed_while_it_notes_the_state_leaves_nothing(environment, tmp_path, repo):
    (repo / "a.txt").write_text("changed\n")
    before = tree(repo / ".git")
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "git").write_text(
        f'#!/bin/sh\nif [ "$1" = update-index ]; then echo $$ > {tmp_path}/pid.new\n'
        f'mv {tmp_path}/pid.new {tmp_path}/pid; sleep 300; fi\nexec {shutil.which("git")} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    hanging = {
        **environment,
        "PATH": f"{slow}:{os.environ['PATH']}",
        "AGENTSDOCK_CODE_DIFF_START_DELAY_SECONDS": "100",
    }
    with running_server(tmp_path / "state", hanging, token=TOKEN) as server:
        house = House(server)
        async with house.http:
            chat = await house.chat()
            run = await house.turn(chat, "[[fake edit=a.txt]]")
        with trio.fail_after(20):
            while not (tmp_path / "pid").exists():
                await trio.sleep(0.02)
            pid = int((tmp_path / "pid").read_text())
            server.process.kill()
            while psutil.pid_exists(pid):
                await trio.sleep(0.02)
    assert list((tmp_path / "state/snapshots").glob("*/*"))
    assert tree(repo / ".git") == before
    with running_server(tmp_path / "state", environment, token=TOKEN) as server:
        house = House(server)
        async with house.http:
            ending = (await until(house, chat, "turn_stopped", run))[-1]
            assert ending["code"] == "server_restart"
            with trio.fail_after(10):
                while not no_snapshot(tmp_path):
                    await trio.sleep(0.02)
            events = await play(house, chat, "edit=a.txt")
    assert events[-2]["additions"] == 1
