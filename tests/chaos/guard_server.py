"""A little server for the chaos tests: ``guard_server.py PREFIX FOLDER SEED...``.

Launches one hostile tree for each seed, prints ``pid start guard_pid guard_start`` of each and
``up`` when all are grown, and then waits to be killed.
"""

import sys
from functools import partial
from pathlib import Path

import trio

from agentsdock.guard.contract import LaunchSpec
from agentsdock.guard.handle import ZygoteLauncher, ZygoteProcess

TREE = str(Path(__file__).with_name("hostile_tree.py"))


def tree(prefix: str, folder: Path, seed: int, ending: str, grace: float) -> LaunchSpec:
    argv = (sys.executable, "-I", "-S", TREE, str(seed), str(folder / f"{seed}"), ending)
    return LaunchSpec(argv, {}, "/", f"{prefix}{seed}", grace=grace)


async def grown(process: ZygoteProcess) -> None:
    """Wait for the tree's first word."""
    if await process.read_stdout(3) != b"up\n":
        raise RuntimeError((await process.read_stderr(4096)).decode())


async def main(prefix: str, folder: Path, seeds: list[int]) -> None:
    async with ZygoteLauncher() as launcher, trio.open_nursery() as nursery:
        running = []

        async def turn(seed: int) -> None:
            process = await launcher.launch(tree(prefix, folder, seed, "stay", 60.0))
            running.append(process)
            await grown(process)
            print(process.pid, process.start_ticks, process.guard_pid, process.guard_start)

        async with trio.open_nursery() as launching:
            for seed in seeds:
                launching.start_soon(turn, seed)
        print("up", flush=True)
        nursery.start_soon(trio.sleep_forever)


if __name__ == "__main__":
    trio.run(partial(main, sys.argv[1], Path(sys.argv[2]), [int(seed) for seed in sys.argv[3:]]))
