"""Much at once: one large stream, many turns."""

import argparse
import asyncio
import contextlib
import statistics
import time
from typing import Any

from benchmarks.driver.api import Turn, Watch, bare, marker, new_session, one_turn, post_turn
from benchmarks.driver.sampling import Sampler
from benchmarks.driver.server import Server, serving
from benchmarks.driver.stats import gaps, plain, spread

STREAMS = {
    "20000x1KB": {"events": 20_000, "size": 1024},
    "50x1MB": {"events": 50, "size": 1_048_576},
}
STREAM_MEASURES = (
    "seconds",
    "cli_lines_per_s",
    "ws_events",
    "ws_events_per_s",
    "ws_MB",
    "server_cpu_s",
    "rss_peak_MB",
)
WIDTHS = (1, 10, 50)
WORK = {"events": 50, "size": 256, "delay": 0.02}
WIDTH_MEASURES = (
    "total_s",
    "server_cpu_s",
    "children_cpu_less_fake_s",
    "rss_peak_MB",
    "rss_tree_peak_MB",
)


async def throughput(args: argparse.Namespace) -> dict[str, Any]:
    found = {}
    async with serving(args, "throughput") as server:
        for name, load in STREAMS.items():
            options = {**load, "events": max(1, int(load["events"] * args.scale))}
            alone = statistics.median(await bare(server, 3, **options))
            runs = [await _stream(server, options) for _ in range(args.heavy_reps)]
            found[name] = {
                "bare_cli_s": round(alone, 3),
                "runs": len(runs),
                "all_finished": all(run["finished"] for run in runs),
                "failed": sum(run["failed"] for run in runs),
                "health_ms_worst": max(run["health"]["max"] for run in runs),
                "health_ms_median": statistics.median(run["health"]["median"] for run in runs),
                "ws_lost_dup": [run["ws_lost_dup"] for run in runs],
                **{key: plain([run[key] for run in runs]) for key in STREAM_MEASURES},
            }
    return found


async def _stream(server: Server, options: dict[str, int]) -> dict[str, Any]:
    session = await new_session(server)
    async with (
        Watch(server, session, keep=False) as watch,
        Sampler(server, health=True) as sample,
    ):
        turn = await one_turn(server, session, watch, timeout=400, **options)
    init = turn.log.first("init")
    assert init is not None
    seconds = (turn.end or time.time()) - init["t"]
    seqs = [row.seq for row in watch.rows if row.seq]
    return {
        "finished": turn.end is not None,
        "failed": watch.failures(),
        "seconds": seconds,
        "cli_lines_per_s": options["events"] / seconds,
        "ws_events": len(seqs),
        "ws_events_per_s": len(seqs) / seconds,
        "ws_MB": watch.bytes / 1e6,
        "ws_lost_dup": gaps(seqs, range(1, max(seqs) + 1)),
        "server_cpu_s": sample.cpu_own,
        "rss_peak_MB": sample.own,
        "health": spread(sample.latency),
    }


async def concurrency(args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"work_per_turn": WORK}
    for width in WIDTHS:
        async with serving(args, f"concurrency-{width}") as server:
            idle, private = server.rss()[0], server.private()
            runs = [await _together(server, width) for _ in range(args.heavy_reps)]
            live = await _private_live(server, width)
        found[str(width)] = {
            "bare_total_s": plain([run["bare_s"] for run in runs]),
            "private_per_turn_MB": round((live - private) / width, 2),
            "idle_rss_MB": round(idle, 1),
            "runs": len(runs),
            "failed": sum(run["failed"] for run in runs),
            "turn_ms": spread([seconds for run in runs for seconds in run["turns"]]),
            "health_ms_worst": max(run["health"]["max"] for run in runs),
            **{key: plain([run[key] for run in runs]) for key in WIDTH_MEASURES},
        }
    return found


async def _together(server: Server, width: int) -> dict[str, Any]:
    began = time.perf_counter()
    await asyncio.gather(*(bare(server, 1, **WORK) for _ in range(width)))
    bare_seconds = time.perf_counter() - began
    sessions = [await new_session(server) for _ in range(width)]
    async with contextlib.AsyncExitStack() as stack:
        watches = [
            await stack.enter_async_context(Watch(server, session, keep=False))
            for session in sessions
        ]
        async with Sampler(server, health=True) as sample:
            turns = await asyncio.gather(
                *(
                    one_turn(server, session, watch, **WORK)
                    for session, watch in zip(sessions, watches, strict=True)
                ),
                return_exceptions=True,
            )
    good = [turn for turn in turns if isinstance(turn, Turn) and turn.end is not None]
    fake_cpu = sum(row["cpu"] for turn in good for row in turn.log.rows("end"))
    return {
        "bare_s": bare_seconds,
        "total_s": max(t.end or 0 for t in good) - min(t.posting for t in good),
        "failed": width - len(good) + sum(watch.failures() for watch in watches),
        "server_cpu_s": sample.cpu_own,
        "children_cpu_less_fake_s": sample.cpu_children - fake_cpu,
        "rss_peak_MB": sample.own,
        "rss_tree_peak_MB": sample.tree,
        "turns": [(turn.end or 0) - turn.posting for turn in good],
        "health": spread(sample.latency),
    }


async def _private_live(server: Server, width: int) -> float:
    """Private MB of server and helpers while ``width`` turns live, in a round of its own."""
    sessions = [await new_session(server) for _ in range(width)]
    orders = {**WORK, "events": 100}
    await asyncio.gather(
        *(post_turn(server, session, marker(server.new_log(), **orders)) for session in sessions)
    )
    await asyncio.sleep(1.5)
    live = server.private()
    await asyncio.sleep(3)
    return live
