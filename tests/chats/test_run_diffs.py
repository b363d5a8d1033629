"""What a run's differ does when git is slow, missing, broken or not trusted, and what is kept."""

import os
import pathlib
import subprocess
import zlib

import pytest
import trio
from attrs import evolve
from house import living, make_settings
from scripted_guard import INIT, RESULT, line

from agentsdock.chats import diffs
from agentsdock.chats.diffs import Diffs
from agentsdock.diffs.repository import find
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.model.errors import NotFound
from agentsdock.store.protocol import StoreFull


@pytest.fixture
async def launcher():
    async with ZygoteLauncher() as launcher:
        yield launcher


@pytest.fixture
def repo(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q")
    (repo / "a.txt").write_text("one\n")
    git(repo, "add", "-A")
    return repo


def git(repo, *arguments):
    env = {"PATH": os.environ["PATH"], "HOME": str(repo.parent)}
    subprocess.run(["git", *arguments], cwd=repo, env=env, check=True)


def make(folder, launcher, *, path=os.environ["PATH"], **changes):
    settings = make_settings(folder, **changes)
    settings = evolve(settings, environ={"PATH": path, "HOME": str(folder)})
    return Diffs(settings, None, launcher, "this-life")


def program(folder, script):
    """A folder in front of the path, with a git of this kind."""
    place = folder / "bin"
    place.mkdir()
    (place / "git").write_text(f"#!/bin/sh\n{script}\n")
    (place / "git").chmod(0o755)
    return f"{place}:{os.environ['PATH']}"


async def edited(diff, repo):
    (repo / "a.txt").write_text("two\n")
    return await diff.after(["a.txt"])


async def test_the_event_and_the_patch_tell_the_same(tmp_path, launcher, repo):
    diff = make(tmp_path, launcher).of_run("run_1")
    await diff.before(str(repo))
    found = await edited(diff, repo)
    assert (found["files_changed"], found["additions"], found["deletions"]) == (1, 1, 1)
    patch = zlib.decompress(diff.patch)
    assert len(patch) == found["byte_count"]
    assert b"-one\n+two\n" in patch
    assert diff.missing is None
    assert "truncated" not in found
    assert "left_out" not in found
    folder = tmp_path / "state/snapshots/this-life/run_1"
    assert folder.exists()
    await diff.close()
    assert not folder.exists()


async def test_outside_of_a_repository_no_program_is_started(tmp_path, launcher):
    told = tmp_path / "told"
    diffs = make(tmp_path, launcher, path=program(tmp_path, f"echo >> {told}"))
    diff = diffs.of_run("run_1")
    await diff.before(str(tmp_path))
    assert await diff.after(["a.txt"]) is None
    await diff.close()
    assert diff.missing is None
    assert not told.exists()
    assert not (tmp_path / "state").exists()


async def test_diffs_can_be_turned_off(tmp_path, launcher, repo):
    told = tmp_path / "told"
    path = program(tmp_path, f"echo >> {told}")
    diff = make(tmp_path, launcher, path=path, code_diff_start_seconds=0).of_run("run_1")
    await diff.before(str(repo))
    assert await edited(diff, repo) is None
    assert not told.exists()


async def test_a_slow_repository_delays_no_more_than_allowed_and_is_left_alone_then(
    tmp_path, launcher, repo, monkeypatch
):
    asked = tmp_path / "asked"
    path = program(tmp_path, f"echo $$ >> {asked}; sleep 100 & wait")
    house = make(tmp_path, launcher, path=path, code_diff_start_seconds=0.2)
    first, second = house.of_run("run_1"), house.of_run("run_2")
    began = trio.current_time()
    await first.before(str(repo))
    assert trio.current_time() - began < 3
    assert await edited(first, repo) is None
    assert "took over 0.2 seconds" in first.missing
    (pid,) = asked.read_text().split()
    assert not pathlib.Path(f"/proc/{pid}").exists(), "the git that was too slow is gone"
    await first.close()
    await second.before(str(repo))
    assert await edited(second, repo) is None
    assert "lately" in second.missing
    assert asked.read_text().split() == [pid], "no second attempt so soon"
    monkeypatch.setattr(diffs, "REST_SECONDS", -1)
    house._house.let_rest(find(str(repo)))
    await house.of_run("run_3").before(str(repo))
    assert len(asked.read_text().split()) == 2
    assert not list((tmp_path / "state").rglob("run_1"))


async def test_a_comparison_that_takes_too_long_is_given_up(tmp_path, launcher, repo):
    real = subprocess.check_output(["/bin/sh", "-c", "command -v git"], text=True).strip()
    slow = f'case "$1" in write-tree) sleep 100;; *) exec {real} "$@";; esac'
    path = program(tmp_path, slow)
    diff = make(tmp_path, launcher, path=path, code_diff_seconds=0.3).of_run("run_1")
    await diff.before(str(repo))
    assert await edited(diff, repo) is None
    assert "not finished in time" in diff.missing


async def test_a_caller_that_is_cancelled_is_told_why_there_is_no_diff(tmp_path, launcher, repo):
    diff = make(tmp_path, launcher).of_run("run_1")
    await diff.before(str(repo))
    with trio.CancelScope() as scope:
        scope.cancel()
        await edited(diff, repo)
    assert scope.cancelled_caught
    assert "not finished in time" in diff.missing


@pytest.mark.parametrize(
    "script, reason",
    [
        ("exit 1", "git config failed"),
        ("kill -9 $$", "git config failed"),
        ('[ "$1" != ls-files ] || exit 128', "git ls-files failed"),
    ],
)
async def test_a_git_that_fails_is_a_reason_and_nothing_more(
    tmp_path, launcher, repo, script, reason
):
    diff = make(tmp_path, launcher, path=program(tmp_path, script)).of_run("run_1")
    await diff.before(str(repo))
    assert await edited(diff, repo) is None
    assert reason in diff.missing


async def test_no_git_is_a_reason(tmp_path, launcher, repo):
    diff = make(tmp_path, launcher, path=str(tmp_path)).of_run("run_1")
    await diff.before(str(repo))
    assert await edited(diff, repo) is None
    assert "not installed" in diff.missing


async def test_a_bug_of_ours_is_contained(tmp_path, launcher, repo, monkeypatch):
    def broken(folder):
        raise RuntimeError("a bug")

    monkeypatch.setattr(diffs, "find", broken)
    diff = make(tmp_path, launcher).of_run("run_1")
    await diff.before(str(repo))
    assert await edited(diff, repo) is None
    assert "the server failed" in diff.missing


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_a_foreign_repository_needs_the_users_trust(tmp_path, launcher, repo):
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    diff = make(tmp_path, launcher).of_run("run_1")
    await diff.before(str(repo))
    assert await edited(diff, repo) is None
    assert "belongs to another user" in diff.missing
    git(repo, "config", "--global", "safe.directory", str(repo))
    (repo / "a.txt").write_text("one\n")
    diff = make(tmp_path, launcher).of_run("run_2")
    await diff.before(str(repo))
    assert (await edited(diff, repo))["files_changed"] == 1


async def test_very_many_files_are_counted_and_a_thousand_listed(tmp_path, launcher, repo):
    diff = make(tmp_path, launcher).of_run("run_1")
    await diff.before(str(repo))
    names = [f"f{number:04}" for number in range(1100)]
    for name in names:
        (repo / name).write_text("new\n")
    found = await diff.after([*names, "/etc/hosts"])
    assert (found["files_changed"], found["additions"]) == (1100, 1100)
    assert len(found["diff_files"]) == len(found["attributed_paths"]) == 1000
    assert found["left_out"] == [{"path": "/etc/hosts", "reason": "outside_repository"}]


async def test_what_earlier_lives_left_is_swept(tmp_path, launcher):
    house = make(tmp_path, launcher)
    snapshots = tmp_path / "state/snapshots"
    for life in ("earlier", "this-life"):
        (snapshots / life / "run_1/objects").mkdir(parents=True)
    await house.sweep()
    assert [folder.name for folder in snapshots.iterdir()] == ["this-life"]


# With the house.


def edit(path):
    call = {"editToolCall": {"args": {"path": path}, "result": {"success": {}}}}
    return b"".join(
        line("tool_call", subtype=subtype, call_id=path, tool_call=call)
        for subtype in ("started", "completed")
    )


FOUND = {"files_changed": 1, "byte_count": 5}


async def test_the_patch_is_durable_with_the_terminal_event(tmp_path):
    async with living(tmp_path) as house:
        chat = await house.new()
        house.next_diff = {"found": FOUND, "patch": zlib.compress(b"patch")}
        ending = await house.play(chat, INIT, edit("a.txt"), RESULT)
        (differ,) = house.differs
        assert differ.edited == [("a.txt",)]
        types = await house.types(chat)
        assert types[-2:] == ["code_diff", "turn_finished"]
    async with living(tmp_path) as house:
        kept = Diffs(house.settings, house.store, None, "life")
        assert await kept.patch(chat, ending["run_id"]) == b"patch"
        for place in ((chat, "run_0"), ("sess_0", ending["run_id"]), (chat, "a/b"), (chat, "")):
            with pytest.raises(NotFound):
                await kept.patch(*place)
        await house.chats.delete(chat)
        with pytest.raises(NotFound):
            await kept.patch(chat, ending["run_id"])


async def test_what_was_noted_is_removed_when_the_turn_is_over(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat = await house.new()
        await house.play(chat, INIT, RESULT)
        await trio.sleep(1)
        assert [differ.closed for differ in house.differs] == [True]


async def test_a_turn_whose_ending_is_a_bug_of_ours_keeps_no_patch(tmp_path):
    async with living(tmp_path) as house:
        chat = await house.new()
        house.next_diff = {"found": {"bad": object()}, "patch": zlib.compress(b"patch")}
        ending = await house.play(chat, INIT, edit("a.txt"), RESULT)
        assert ending["code"] == "internal_error"
        assert "code_diff" not in await house.types(chat)
        assert await house.store.read_diff(chat, ending["run_id"]) is None


async def test_a_diff_that_meets_a_full_disk_is_kept_once_there_is_space(
    tmp_path, autojump_clock, monkeypatch
):
    async with living(tmp_path) as house:
        chat = await house.new()
        finish, refused = house.store.finish, []

        async def full_twice(*unit):
            if len(refused) < 2:
                refused.append(unit)
                raise StoreFull("no space")
            return await finish(*unit)

        monkeypatch.setattr(house.store, "finish", full_twice)
        house.next_diff = {"found": FOUND, "patch": zlib.compress(b"patch")}
        ending = await house.play(chat, INIT, edit("a.txt"), RESULT)
        assert len(refused) == 2
        assert await house.store.read_diff(chat, ending["run_id"]) == zlib.compress(b"patch")
        assert (await house.types(chat)).count("code_diff") == 1
