"""Two hundred random process trees, each ended in one of five ways; none may survive.

Each seed grows the same tree again: a failure names the seeds of its batch.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio
from guard_server import grown, tree
from hostile_tree import plan, recorded

from agentsdock.guard import procs
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.guard.process_guard import all_pids
from agentsdock.guard.sweep import SweepRecord, sweep

pytestmark = pytest.mark.chaos

BATCH = 8
PREFIX = f"chaos-{os.getpid()}:"


def batches(first: int) -> list[range]:
    """Forty seeds from there on, in batches that run at once."""
    return [range(seed, seed + BATCH) for seed in range(first, first + 40, BATCH)]


def ledgers(folder: Path) -> int:
    return sum(ledger.stat().st_size for ledger in folder.iterdir())


def survivors(folder: Path) -> list[int]:
    """Who of the recorded or marked processes is alive; -1 for those too quick to be seen."""
    size = ledgers(folder)
    known = {one for ledger in folder.iterdir() for one in recorded(str(ledger))}
    alive = [look for pid in all_pids() if (look := procs.look(pid)) and not look.dead]
    line = procs.own_line()
    found = [
        process.pid
        for process in alive
        if (process.pid, process.start_ticks) in known
        or (process.pid not in line and (procs.marker_of(process.pid) or "").startswith(PREFIX))
    ]
    return found if ledgers(folder) == size else [*found, -1]


def test_the_trees_are_as_hostile_as_they_should_be() -> None:
    trees = [plan(seed) for seed in range(200)]
    for trait in ("setsid", "daemon", "deaf", "stopped", "storm"):
        assert sum(any(trait in node.traits for node in tree) for tree in trees) > 100
    assert max(len(tree) for tree in trees) == 25


async def run_batch(seeds: range, folder: Path, ending: str, kill: str) -> None:
    async with ZygoteLauncher() as launcher, trio.open_nursery() as nursery:

        async def turn(seed: int) -> None:
            process = await launcher.launch(tree(PREFIX, folder, seed, ending, grace=0.1))
            await grown(process)
            if kill == "guard":
                os.kill(process.guard_pid, signal.SIGKILL)
            elif kill == "stop":
                process.request_stop()
            with trio.fail_after(10):
                report = await process.wait_report()
            assert report.survivors == ()
            assert report.guard_lost == (kill == "guard")
            assert report.killed == (kill == "stop")
            if kill == "nothing":
                assert report.exit_code == 0
            await process.aclose()

        for seed in seeds:
            nursery.start_soon(turn, seed)
    assert survivors(folder) == []


@pytest.mark.parametrize("seeds", batches(0), ids=str)
async def test_a_cli_that_exits_leaves_nothing(seeds: range, tmp_path: Path) -> None:
    await run_batch(seeds, tmp_path, "exit", "nothing")


@pytest.mark.parametrize("seeds", batches(40), ids=str)
async def test_a_stopped_turn_leaves_nothing(seeds: range, tmp_path: Path) -> None:
    await run_batch(seeds, tmp_path, "stay", "stop")


@pytest.mark.parametrize("seeds", batches(80), ids=str)
async def test_a_killed_guard_leaves_nothing(seeds: range, tmp_path: Path) -> None:
    await run_batch(seeds, tmp_path, "stay", "guard")


class Life:
    """One life of a little server with a batch of trees; leaving kills it."""

    def __init__(self, seeds: range, folder: Path) -> None:
        argv = [sys.executable, str(Path(__file__).with_name("guard_server.py")), PREFIX]
        self.process = subprocess.Popen(
            [*argv, str(folder), *map(str, seeds)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        lines = [line.split() for line in iter(self.process.stdout.readline, "up\n") if line]
        assert len(lines) == len(seeds)
        self.clis = [SweepRecord(int(line[0]), int(line[1])) for line in lines]
        self.guards = [SweepRecord(int(line[2]), int(line[3])) for line in lines]

    def __enter__(self) -> "Life":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("seeds", batches(120), ids=str)
def test_a_killed_server_leaves_nothing(seeds: range, tmp_path: Path) -> None:
    with Life(seeds, tmp_path) as life:
        assert len(survivors(tmp_path)) >= BATCH
        life.process.kill()
        until = time.monotonic() + 3
        while (left := survivors(tmp_path)) and time.monotonic() < until:
            pass
        assert left == []


@pytest.mark.parametrize("seeds", batches(160), ids=str)
async def test_a_sweep_ends_what_a_killed_server_with_its_guards_left(
    seeds: range, tmp_path: Path
) -> None:
    with Life(seeds, tmp_path) as life:
        for guard in life.guards:
            os.kill(guard.pid, signal.SIGSTOP)
        life.process.kill()
        life.process.wait()
        for guard in life.guards:
            os.kill(guard.pid, signal.SIGKILL)
        assert len(survivors(tmp_path)) >= BATCH
        result = await sweep([*life.guards, *life.clis], marker_prefix=PREFIX)
        assert result.survivors == ()
        assert len(result.ended) >= BATCH
        assert survivors(tmp_path) == []
        again = await sweep([*life.guards, *life.clis], marker_prefix=PREFIX)
        assert again.ended == ()
