"""What the server adds to the shortest turn."""

import argparse
import asyncio
import statistics
from typing import Any

from benchmarks.driver.api import PROVIDER, Watch, bare, new_session, one_turn
from benchmarks.driver.server import Server, serving
from benchmarks.driver.stats import spread

WARM_UP = 3
MEASURES = (
    "total",
    "overhead",
    "post_reply",
    "post_to_spawn",
    "spawn_to_first_event",
    "emit_to_ws",
    "exit_to_finished",
)


async def overhead(args: argparse.Namespace) -> dict[str, Any]:
    async with serving(args, "overhead") as server:
        return await overhead_on(server, args.reps)


async def overhead_on(server: Server, reps: int) -> dict[str, Any]:
    """One bare run after each turn: a machine's speed can drift by half within a minute."""
    alone: list[float] = []
    rows: dict[str, list[float]] = {name: [] for name in MEASURES}
    session = await new_session(server)
    async with Watch(server, session, keep=False) as watch:
        for index in range(reps + WARM_UP):
            turn = await one_turn(server, session, watch, events=1)
            await asyncio.sleep(0.02)
            alone += await bare(server, 1, events=1)
            start, init, end = (turn.log.first(step) for step in ("start", "init", "end"))
            first = watch.when(PROVIDER, turn.run_id)
            if index < WARM_UP or turn.end is None or not (start and init and end and first):
                continue
            rows["total"].append(turn.end - turn.posting)
            rows["post_reply"].append(turn.posted - turn.posting)
            rows["post_to_spawn"].append(start["t_start"] - turn.posting)
            rows["spawn_to_first_event"].append(first - start["t_start"])
            rows["emit_to_ws"].append(first - init["t"])
            rows["exit_to_finished"].append(turn.end - end["t"])
            await asyncio.sleep(0.02)
    base = statistics.median(alone)
    rows["overhead"] = [total - base for total in rows["total"]]
    measured = {name: spread(values) for name, values in rows.items()}
    failed = watch.failures() + reps - len(rows["total"])
    return {"unit": "ms", "failed": failed, "bare_cli": spread(alone), **measured}
