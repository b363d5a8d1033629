"""Latencies and memory of the guard: ``python benchmarks/guard.py [--json]``.

Times are milliseconds (median and 99th percentile), memory is private bytes per live turn as
``/proc/PID/smaps_rollup`` counts them.  ``bare`` is the same program started by posix_spawn,
taken in turn with ours.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from agentsdock.guard.contract import LaunchSpec
from agentsdock.guard.handle import ZygoteLauncher, ZygoteProcess

ENV = {"PATH": "/usr/bin:/bin"}
HOSTILE = """
import os, signal
def leaf():
    os.write(w, b"x")
    while True: signal.pause()
r, w = os.pipe()
for n in range(49):
    if os.fork() == 0:
        if n % 4 in (1, 3): os.setsid()
        if n % 4 in (2, 3): signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if n % 4 == 3:
            if os.fork(): os._exit(0)
            os.setsid()
        leaf()
for n in range(49): os.read(r, 1)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"up")
while True: signal.pause()
"""
SERVER = """
import sys, trio
from agentsdock.guard.contract import LaunchSpec
from agentsdock.guard.handle import ZygoteLauncher
async def main():
    async with ZygoteLauncher() as launcher:
        argv = (sys.executable, "-I", "-S", "-c", sys.argv[1])
        process = await launcher.launch(LaunchSpec(argv, {}, "/", "bench:server", grace=60.0))
        await process.read_stdout(2)
        print(process.guard_pid, flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


def spec(*argv: str, grace: float = 2.0) -> LaunchSpec:
    return LaunchSpec(argv, ENV, "/", "bench:guard", grace=grace, background=False)


def hostile(grace: float) -> LaunchSpec:
    return spec(sys.executable, "-I", "-S", "-c", HOSTILE, grace=grace)


async def spawn_to_first_byte(launcher: ZygoteLauncher) -> float:
    began = time.perf_counter()
    process = await launcher.launch(spec("/bin/echo", "x"))
    await process.read_stdout(10)
    took = time.perf_counter() - began
    await process.wait_report()
    await process.aclose()
    return took


async def bare_spawn_to_first_byte(_: ZygoteLauncher) -> float:
    reader, writer = os.pipe()
    began = time.perf_counter()
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    pid = os.posix_spawn("/bin/echo", ["echo", "x"], ENV, file_actions=actions, setsid=True)
    os.close(writer)
    os.read(reader, 10)
    took = time.perf_counter() - began
    os.close(reader)
    os.waitpid(pid, 0)
    return took


async def stop(process: ZygoteProcess) -> float:
    began = time.perf_counter()
    report = await process.end()
    took = time.perf_counter() - began
    assert report.survivors == ()
    await process.aclose()
    return took


async def stop_polite(launcher: ZygoteLauncher) -> float:
    return await stop(await launcher.launch(spec("/bin/sleep", "600")))


async def stop_hostile_without_grace(launcher: ZygoteLauncher) -> float:
    process = await launcher.launch(hostile(0.0))
    await process.read_stdout(2)
    return await stop(process)


async def stop_hostile_over_grace_of_200_ms(launcher: ZygoteLauncher) -> float:
    process = await launcher.launch(hostile(0.2))
    await process.read_stdout(2)
    return await stop(process) - 0.2


async def guard_killed_to_empty_tree(launcher: ZygoteLauncher) -> float:
    process = await launcher.launch(hostile(0.0))
    await process.read_stdout(2)
    began = time.perf_counter()
    os.kill(process.guard_pid, signal.SIGKILL)
    report = await process.wait_report()
    took = time.perf_counter() - began
    assert report.survivors == ()
    await process.aclose()
    return took


async def server_killed_to_guard_gone(_: ZygoteLauncher) -> float:
    """The guard leaves only when nothing of its tree is left."""
    argv = [sys.executable, "-c", SERVER, HOSTILE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pidfd = os.pidfd_open(int(server.stdout.readline()))
        began = time.perf_counter()
        server.kill()
        await trio.lowlevel.wait_readable(pidfd)
        took = time.perf_counter() - began
        os.close(pidfd)
        return took


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


async def memory_per_turn(launcher: ZygoteLauncher, turns: int = 50) -> dict[str, float]:
    before = private_bytes(os.getpid())
    running = [await launcher.launch(spec("/bin/sleep", "600")) for _ in range(turns)]
    guards = [private_bytes(process.guard_pid) for process in running]
    server = (private_bytes(os.getpid()) - before) / turns
    for process in running:
        await process.end()
        await process.aclose()
    return {"guard_bytes": statistics.fmean(guards), "server_bytes": server}


MEASURES: tuple[tuple[Callable[[ZygoteLauncher], Awaitable[float]], int], ...] = (
    (bare_spawn_to_first_byte, 200),
    (spawn_to_first_byte, 200),
    (stop_polite, 200),
    (stop_hostile_without_grace, 25),
    (stop_hostile_over_grace_of_200_ms, 15),
    (guard_killed_to_empty_tree, 25),
    (server_killed_to_guard_gone, 10),
)


async def main() -> None:
    results: dict[str, dict[str, float]] = {}
    async with ZygoteLauncher() as launcher:
        taken: dict[str, list[float]] = {measure.__name__: [] for measure, _ in MEASURES}
        for turn in range(max(times for _, times in MEASURES)):
            for measure, times in MEASURES:
                if turn < times:
                    taken[measure.__name__].append(await measure(launcher) * 1000)
        for name, values in taken.items():
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            results[name] = {"runs": len(values), "p50_ms": cuts[49], "p99_ms": cuts[98]}
        results["memory_per_turn"] = await memory_per_turn(launcher)
    if "--json" in sys.argv:
        print(json.dumps(results, indent=1))
        return
    for name, figures in results.items():
        print(f"{name:36}", "  ".join(f"{key} {value:,.2f}" for key, value in figures.items()))


if __name__ == "__main__":
    os.chdir(tempfile.gettempdir())
    trio.run(main)
