"""Start-up, idle memory, many chats, one long chat."""

import argparse
import asyncio
import subprocess
import time
from typing import Any

from benchmarks.driver.api import Watch, new_session, one_turn
from benchmarks.driver.sampling import Sampler
from benchmarks.driver.scenarios.overhead import overhead_on
from benchmarks.driver.server import Server, json_of, serving
from benchmarks.driver.stats import plain, spread

SESSIONS = 1000
LONG_EVENTS = (50_000, 200_000)
IDLE_SECONDS = 2
LISTS = {"list": "/api/sessions", "list_summary": "/api/sessions?summary=true"}


async def scale(args: argparse.Namespace) -> dict[str, Any]:
    found = {**await _starts(args), **await _many_chats(args)}
    shorter, longer = LONG_EVENTS
    return {**found, **await _long_chat(args, shorter), "longer": await _long_chat(args, longer)}


async def _starts(args: argparse.Namespace) -> dict[str, Any]:
    starts, idle = [], []
    for _ in range(args.start_reps):
        async with serving(args, "startup") as server:
            starts.append(server.startup)
            await asyncio.sleep(IDLE_SECONDS)
            idle.append(server.rss())
    imports = [_import_seconds(server) for _ in range(args.start_reps)]
    return {
        "startup_empty_ms": spread(starts),
        "idle_rss_MB": plain([own for own, _ in idle], 1),
        "idle_rss_tree_MB": plain([tree for _, tree in idle], 1),
        "import_ms": spread(imports),
    }


def _import_seconds(server: Server) -> float:
    began = time.perf_counter()
    subprocess.run(
        [server.args.server_python, "-c", f"import {server.args.import_module}"],
        cwd=server.args.server_cwd,
        env=server.environ(),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


async def _many_chats(args: argparse.Namespace) -> dict[str, Any]:
    count = int(SESSIONS * args.scale)
    found: dict[str, Any] = {}
    async with serving(args, "scale") as server:
        creates = []
        for index in range(count):
            began = time.perf_counter()
            await new_session(server, f"chat {index}")
            creates.append(time.perf_counter() - began)
        found["create_session_ms"] = {
            "first_100": spread(creates[:100]),
            "last_100": spread(creates[-100:]),
        }
        for name, path in LISTS.items():
            times, size = await _timed_gets(server, path, 30)
            found[f"{name}_{count}_ms"] = {**spread(times), "KB": size // 1000}
        found["rss_with_sessions_MB"] = round(server.rss()[0], 1)
        found["overhead_with_sessions"] = await overhead_on(server, 30)
        rounds = [await _stream(server) for _ in range(args.heavy_reps)]
        rounds.sort(key=lambda one: one["lines_per_s"])
        found["throughput_with_sessions"] = {
            **rounds[len(rounds) // 2],
            "each": [one["lines_per_s"] for one in rounds],
        }
    return found


async def _stream(server: Server) -> dict[str, Any]:
    session, lines = await new_session(server), int(server.args.crowded_lines * server.args.scale)
    async with (
        Watch(server, session, keep=False) as watch,
        Sampler(server, health=True) as sample,
    ):
        turn = await one_turn(server, session, watch, timeout=400, events=lines, size=1024)
    init = turn.log.first("init")
    assert init is not None
    return {
        "cli_lines": lines,
        "lines_per_s": round(lines / ((turn.end or time.time()) - init["t"]), 1),
        "server_cpu_s": round(sample.cpu_own, 2),
        "health_ms": spread(sample.latency),
    }


async def _long_chat(args: argparse.Namespace, events: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with serving(args, "long") as server:
        session = await new_session(server)
        lines = int(events / args.events_per_line * args.scale)
        async with Watch(server, session, keep=False) as watch:
            await one_turn(server, session, watch, timeout=1200, size=512, events=lines)
        searches = {"rare": "q=fake", "common": "q=xx", "absent": "q=nowhere+to+be+found"}
        for name, query in searches.items():  # most is not indexed yet
            found[f"search_fresh_{name}_ms"] = await _page(server, f"{session}/search?{query}", 1)
        total = sum(bool(row.seq) for row in watch.rows)
        found["long_session_events"] = total
        found["long_session_rss_before_MB"] = round(server.rss()[0], 1)
        pages = {
            "tail_100": "limit=100",
            "compact_100": "limit=100&compact=true",
            "semantic_100": "limit=100&page_mode=semantic",
            "after_last_100": f"after={total - 100}&limit=100&tail=false",
            "after_middle_100": f"after={total // 2}&limit=100&tail=false",
            "before_middle_100": f"before={total // 2}&limit=100",
        }
        for name, query in pages.items():
            found[f"detail_{name}_ms"] = await _page(server, f"{session}?{query}")
        await asyncio.sleep(events / 10_000)  # for the index
        for name, query in searches.items():
            found[f"search_{name}_ms"] = await _page(server, f"{session}/search?{query}")
        found["long_session_rss_after_MB"] = round(server.rss()[0], 1)
        found["ws_catch_up_all_s"] = round(await _catch_up(server, session, total), 2)
        await server.stop()
        found["startup_long_session_ms"] = round(1000 * await server.start(), 1)
        await asyncio.sleep(IDLE_SECONDS)
        found["idle_rss_long_session_MB"] = round(server.rss()[0], 1)
    return found


async def _page(server: Server, path: str, count: int = 10) -> dict[str, Any]:
    began = time.perf_counter()
    reply = await server.http.get(f"/api/sessions/{path}")
    first = time.perf_counter() - began
    if not reply.is_success:
        return {"n": 0, "status": reply.status_code}
    times, _ = await _timed_gets(server, f"/api/sessions/{path}", count)
    return {**spread(times), "first": round(first * 1000, 1)}


async def _timed_gets(server: Server, path: str, count: int) -> tuple[list[float], int]:
    times, size = [], 0
    for _ in range(count):
        began = time.perf_counter()
        reply = await server.http.get(path)
        times.append(time.perf_counter() - began)
        json_of(reply)
        size = len(reply.content)
    return times, size


async def _catch_up(server: Server, session: str, total: int) -> float:
    began = time.perf_counter()
    async with Watch(server, session, keep=False) as watch:
        while len(watch.rows) < total and time.perf_counter() - began < 120:
            await asyncio.sleep(0.02)
    return time.perf_counter() - began
