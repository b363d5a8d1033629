"""The zygote and its spare: replaced when they die, gone when the server is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from guard_helpers import ENV, Story, eventually, gone, is_alive, python

from agentsdock.guard import handle, orphans
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.guard.once import run_once
from agentsdock.guard.process_guard import children_of, start_ticks
from agentsdock.guard.sweep import SweepResult, sweep

pytestmark = pytest.mark.chaos

BYTECODE = shutil.ignore_patterns("__pycache__")


def zygote_of(launcher: ZygoteLauncher) -> int:
    [zygote] = children_of(os.getpid())
    return zygote


async def spare_of(zygote: int, guard: int = 0) -> int:
    await eventually(lambda: len({*children_of(zygote)} - {guard}) == 1)
    [spare] = {*children_of(zygote)} - {guard}
    return spare


async def works(launcher: ZygoteLauncher) -> bool:
    return (await run_once(launcher, ("/bin/echo", "ok"), ENV, "/", 10)).stdout == b"ok\n"


@pytest.mark.parametrize("also_spare", [False, True])
async def test_running_turns_outlive_the_zygote_and_new_ones_start(
    launcher: ZygoteLauncher, also_spare: bool
) -> None:
    process = await launcher.launch(python("daemon(ignore_term=True)\nsay('up'); forever()"))
    story = Story(process)
    await story.until("up")
    zygote = zygote_of(launcher)
    spare = await spare_of(zygote, process.guard_pid)
    began = start_ticks(zygote)
    os.kill(zygote, signal.SIGKILL)
    if also_spare:
        os.kill(spare, signal.SIGKILL)
    assert await gone(zygote, began)
    assert await works(launcher)
    assert await works(launcher)
    assert len(story.survivors()) == 2
    report = await process.end()
    assert report.tree_empty
    assert not report.guard_lost
    assert report.processes_ended == 1
    await process.aclose()
    assert len(children_of(os.getpid())) == 1, "no zombie of the first zygote is left"


async def test_launches_that_meet_the_zygotes_death_still_start(launcher: ZygoteLauncher) -> None:
    for _ in range(5):
        [zygote] = children_of(os.getpid())
        os.kill(zygote, signal.SIGKILL)
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(works, launcher)
    assert await works(launcher)
    assert len(children_of(os.getpid())) == 1


async def test_polite_signals_move_neither_guard_nor_zygote(launcher: ZygoteLauncher) -> None:
    process = await launcher.launch(python("say('up'); forever()"))
    story = Story(process)
    await story.until("up")
    zygote = zygote_of(launcher)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(process.guard_pid, signum)
        os.kill(zygote, signum)
    assert await works(launcher)
    assert zygote_of(launcher) == zygote
    assert len(story.survivors()) == 1
    assert not (await process.end()).guard_lost
    await process.aclose()


async def test_a_killed_spare_is_replaced(launcher: ZygoteLauncher) -> None:
    zygote = zygote_of(launcher)
    spare = await spare_of(zygote)
    os.kill(spare, signal.SIGKILL)
    assert await works(launcher)
    assert zygote_of(launcher) == zygote


async def test_a_zygote_that_hangs_is_replaced_and_the_job_done_once(
    launcher: ZygoteLauncher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(handle, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(handle, "EXIT_SECONDS", 0.1)
    zygote = zygote_of(launcher)
    os.kill(await spare_of(zygote), signal.SIGSTOP)
    os.kill(zygote, signal.SIGSTOP)
    argv = ("/bin/sh", "-c", f"echo done >> {tmp_path}/log")
    assert (await run_once(launcher, argv, ENV, "/", 10)).exit_code == 0
    await eventually(lambda: launcher.reap() or len(children_of(os.getpid())) == 1)
    assert zygote_of(launcher) != zygote
    assert (tmp_path / "log").read_text() == "done\n"


async def test_a_closed_launcher_leaves_no_process() -> None:
    async with ZygoteLauncher() as launcher:
        assert await works(launcher)
        zygote = zygote_of(launcher)
        spare = await spare_of(zygote)
        began = start_ticks(spare)
    assert children_of(os.getpid()) == []
    assert not is_alive(spare, began)


async def test_a_zygote_that_cannot_run_fails_the_launch_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handle, "ZYGOTE", handle.ZYGOTE.with_name("contract.py"))
    async with ZygoteLauncher() as launcher:
        with pytest.raises(handle.SpawnFailed, match="no guard took the job"):
            await works(launcher)


SERVER = """
import os, sys, trio
sys.path[:0] = sys.argv[1:]
from agentsdock.guard.handle import ZygoteLauncher
from guard_helpers import Story, python

async def main():
    async with ZygoteLauncher('little-server') as launcher:
        process = await launcher.launch(python(
            "child(); daemon(ignore_term=True); daemon(); say('up'); forever()", grace=60.0))
        story = Story(process)
        await story.until("up")
        for pid, began in story.processes:
            print(pid, began)
        print(process.guard_pid, process.guard_start)
        print("up", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@asynccontextmanager
async def server() -> AsyncIterator[tuple[subprocess.Popen[bytes], list[tuple[int, int]]]]:
    """A little server with one turn under way, and every process that belongs to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, os.path.dirname(__file__)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process, trio.fail_after(30):
        members = []
        async with trio.lowlevel.FdStream(os.dup(process.stdout.fileno())) as out:
            text = b""
            while b"up\n" not in text:
                data = await out.receive_some(4096)
                assert data
                text += data
        for line in text.decode().split("\n")[:-2]:
            pid, began = map(int, line.split())
            members.append((pid, began))
        [zygote] = children_of(process.pid)
        await eventually(lambda: len(children_of(zygote)) == 2)
        helpers = (zygote, *children_of(zygote))
        members.extend((helper, start_ticks(helper) or 0) for helper in helpers)
        try:
            yield process, members
        finally:
            process.kill()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
async def test_nothing_outlives_a_killed_server(signum: signal.Signals) -> None:
    async with server() as (process, members):
        assert len(members) == 8
        began = trio.current_time()
        process.send_signal(signum)
        for pid, start in members:
            assert await gone(pid, start)
        assert trio.current_time() - began < 1.0


async def test_what_was_stopped_when_the_server_was_killed_is_swept() -> None:
    async with server() as (process, members):
        for pid, _ in members:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait()
        assert all(is_alive(pid, start) for pid, start in members)
        await sweep([], marker_prefix="little-server:")
        assert not any(is_alive(pid, start) for pid, start in members)


async def test_a_sweep_spares_the_helpers_of_its_own_life() -> None:
    orphans.reap(lambda _: True)
    async with ZygoteLauncher("mine") as launcher:
        zygote = zygote_of(launcher)
        await spare_of(zygote)
        assert await sweep([], marker_prefix="mine:") == SweepResult((), ())
        assert await works(launcher)
        assert zygote_of(launcher) == zygote


@pytest.mark.parametrize("kept_in", [None, "elsewhere"])
async def test_the_helpers_leave_no_bytecode_where_the_server_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_in: str | None
) -> None:
    package = tmp_path / "agentsdock"
    shutil.copytree(handle.ZYGOTE.parent, package / "guard", ignore=BYTECODE)
    shutil.copy(handle.ZYGOTE.parent.parent / "__init__.py", package)
    monkeypatch.setattr(handle, "ZYGOTE", package / "guard" / "zygote.py")
    monkeypatch.setattr(sys, "dont_write_bytecode", kept_in is None)
    monkeypatch.setattr(sys, "pycache_prefix", kept_in and str(tmp_path / kept_in))
    async with ZygoteLauncher() as launcher:
        assert await works(launcher)
    assert not list(package.rglob("__pycache__"))
    assert bool(list(tmp_path.rglob("process_guard*.pyc"))) == (kept_in is not None)
