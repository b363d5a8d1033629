"""The boot sweep: what it ends, what it leaves alone, and what it says."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from guard_helpers import ENV, PRELUDE, is_alive

from agentsdock.guard.hunt import Ended
from agentsdock.guard.process_guard import start_ticks
from agentsdock.guard.sweep import SweepRecord, SweepResult, sweep


@contextmanager
def leftover(program: str, marker: str | None, **options: object) -> Iterator[list[Ended]]:
    """Processes of an earlier life: those that the program tells of before it says up."""
    env = ENV if marker is None else ENV | {"AGENTSDOCK_RUN_MARKER": marker}
    process = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-I", "-S", "-c", PRELUDE + program],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    lines = list(iter(process.stdout.readline, "up\n"))
    told = [Ended(*map(int, line.split()[1:])) for line in lines]
    try:
        yield told
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for one in told:
            if is_alive(one.pid, one.start_ticks):
                os.kill(one.pid, 9)


def alive(told: list[Ended]) -> list[int]:
    return [one.pid for one in told if is_alive(one.pid, one.start_ticks)]


TREE = "child(); daemon(); daemon(ignore_term=True)\nsay('up'); forever()"


async def test_everything_with_our_marker_is_ended_and_told() -> None:
    with leftover(TREE, "mine:1") as first, leftover(TREE, "mine:2") as second:
        result = await sweep([], marker_prefix="mine:")
        assert set(result.ended) == {*first, *second}
        assert len(result.ended) == 8
        assert result.survivors == ()
        assert alive([*first, *second]) == []


async def test_a_second_sweep_finds_nothing() -> None:
    with leftover(TREE, "mine:1"):
        await sweep([], marker_prefix="mine:")
        assert await sweep([], marker_prefix="mine:") == SweepResult((), ())


async def test_other_servers_processes_and_strangers_stay() -> None:
    with leftover(TREE, "other:mine:1") as others, leftover(TREE, None) as strangers:
        assert await sweep([], marker_prefix="mine:") == SweepResult((), ())
        assert len(alive([*others, *strangers])) == 8


async def test_what_runs_under_a_marked_process_without_environment_is_ended_too() -> None:
    with leftover("daemon(bare=True)\nsay('up'); forever()", "mine:1") as told:
        root = told[0]
        # The daemon has neither marker nor parent of ours: only its record finds it.
        result = await sweep([SweepRecord(told[1].pid, told[1].start_ticks)], marker_prefix="mine:")
        assert set(result.ended) == set(told)
        assert not is_alive(root.pid, root.start_ticks)


async def test_descent_and_session_find_what_cleared_its_environment() -> None:
    program = """
ready, done = os.pipe()
if os.fork() == 0:
    say("process", *me())                    # a child without environment
    os.write(done, b"x")
    os.execve("/bin/sleep", ["sleep", "600"], {})
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    say("process", *me())                    # an orphan of the same session without environment
    os.write(done, b"x")
    os.execve("/bin/sleep", ["sleep", "600"], {})
os.wait()
os.read(ready, 1); os.read(ready, 1)
say('up')
forever()
"""
    with leftover(program, None) as told:
        cli = told[0]
        result = await sweep([SweepRecord(cli.pid, cli.start_ticks)], marker_prefix="mine:")
        assert set(result.ended) == set(told)
        assert len(told) == 3


async def test_a_record_of_a_reused_number_ends_nobody() -> None:
    with leftover(TREE, None) as told:
        records = [SweepRecord(one.pid, one.start_ticks - 1) for one in told]
        assert await sweep(records, marker_prefix="mine:") == SweepResult((), ())
        assert len(alive(told)) == 4


async def test_a_sweep_spares_its_own_process_and_its_ancestors() -> None:
    records = [
        SweepRecord(pid, start_ticks(pid) or 0) for pid in (os.getpid(), os.getppid()) if pid > 1
    ]
    assert await sweep(records, marker_prefix="mine:") == SweepResult((), ())


async def test_a_fork_storm_without_parent_is_ended() -> None:
    program = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end = time.monotonic() + 30
for n in range(6):
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.0005)
        os._exit(0)
say('up')
os._exit(0)
"""
    with leftover(program, "mine:storm"):
        result = await sweep([], marker_prefix="mine:", seconds=10)
        assert len(result.ended) >= 6
        assert result.survivors == ()
        assert await sweep([], marker_prefix="mine:") == SweepResult((), ())


async def test_a_sweep_without_time_tells_what_it_left() -> None:
    with leftover(TREE, "mine:1") as told:
        result = await sweep([], marker_prefix="mine:", seconds=0.0)
        assert set(result.survivors) == {one.pid for one in told}
        await sweep([], marker_prefix="mine:")
        assert alive(told) == []


async def test_an_empty_prefix_is_refused() -> None:
    with pytest.raises(ValueError, match="prefix"):
        await sweep([], marker_prefix="")
