"""How fast a stop is, and what it leaves."""

import argparse
import asyncio
import time
from typing import Any

from benchmarks.driver.api import PROVIDER, TERMINAL, Watch, marker, new_session, post_turn
from benchmarks.driver.processes import FakeLog, until_gone
from benchmarks.driver.server import Server, serving
from benchmarks.driver.stats import spread

HOSTILE_PROCESSES = 50
STARTED = PROVIDER | {"provider_session"}
"""By then the agent has started its processes and said so.  (Some servers make no event of an
init line but this one.)"""
CASES: dict[str, dict[str, Any]] = {
    "no child": {},
    "plain child": {"child": "plain"},
    "SIGTERM-ignoring child": {"child": "term"},
    "setsid double-fork": {"child": "setsid"},
    "setsid double-fork ignoring SIGTERM": {"child": "setsidterm"},
    "CLI ignores SIGTERM": {"ignoreterm": 1},
    "setsid double-fork holds stdout": {"child": "setsid", "holdpipe": 1},
    "50 hostile processes": {
        "child": ",".join(["setsidterm", "term"] * (HOSTILE_PROCESSES // 2)),
    },
}


async def stop(args: argparse.Namespace) -> dict[str, Any]:
    found = {}
    async with serving(args, "stop") as server:
        for name, options in CASES.items():
            if args.case in name:
                rows = [await _stop_once(server, options) for _ in range(args.stop_reps)]
                found[name] = _summary(rows)
    return found


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "reps": len(rows),
        "reply_ms": spread([row["reply"] for row in rows]),
        "stopped_event_ms": spread([row["event"] for row in rows]),
        "cli_gone_ms": spread([row["gone"]["cli"] for row in rows]),
        "all_gone_ms": spread([row["gone"]["all"] for row in rows]),
        "stop_to_next_turn_spawn_ms": spread([row["next"] for row in rows]),
        "reply_status": sorted({row["status"] for row in rows}),
        "next_turn_queued": sum(bool(row["queued"]) for row in rows),
        "terminal_events": sorted({tuple(row["terminal"]) for row in rows}),
        "orphans_5s": sum(len(row["gone"]["orphans"]) for row in rows),
        "orphans": sorted({kind for row in rows for kind in row["gone"]["orphans"]}),
    }


async def _stop_once(server: Server, options: dict[str, Any]) -> dict[str, Any]:
    """Stop a turn that hangs, then run another one in the same chat."""
    session, log, after = await new_session(server), server.new_log(), server.new_log()
    async with Watch(server, session) as watch:
        turn = await post_turn(server, session, marker(log, hang=1, **options))
        await watch.until(STARTED, timeout=30)
        began = time.time()
        gone = asyncio.create_task(until_gone(log, began))
        reply = await server.http.post(f"/api/sessions/{session}/stop")
        answered = time.time() - began
        ended = await watch.until(TERMINAL, turn["run_id"], 15)
        following = await post_turn(server, session, marker(after, events=1))
        start = await _first_start(after)
        terminal = [
            row.type for row in watch.rows if row.type in TERMINAL and row.run_id == turn["run_id"]
        ]
    row = {
        "reply": answered,
        "status": reply.status_code,
        "event": ended and ended - began,
        "next": start and start["t_start"] - began,
        "queued": following.get("queued"),
        "terminal": terminal,
        "gone": await gone,
    }
    log.reap()
    return row


async def _first_start(log: FakeLog) -> dict[str, Any] | None:
    for _ in range(400):
        if start := log.first("start"):
            return start
        await asyncio.sleep(0.01)
    return None
