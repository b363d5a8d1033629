"""The server dies or is told to go in mid-turn: what lives on, what a restart says."""

import argparse
import asyncio
import json
import time
from typing import Any

from benchmarks.driver.api import (
    PROVIDER,
    TERMINAL,
    Watch,
    all_events,
    marker,
    new_session,
    post_turn,
)
from benchmarks.driver.processes import FakeLog, find, until_gone
from benchmarks.driver.server import Server, json_of, serving
from benchmarks.driver.stats import gaps

STREAMING = {"events": 3000, "delay": 0.01, "child": "plain,setsid"}
SILENT = {"hang": 1, "child": "plain,setsid"}
CASES = {
    "SIGKILL, streaming CLI": (True, STREAMING),
    "SIGKILL, silent CLI": (True, SILENT),
    "SIGTERM, streaming CLI": (False, STREAMING),
    "SIGTERM, silent CLI": (False, SILENT),
}
LOOKS_SECONDS = (0, 1, 3, 10)


async def crash(args: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for name, (hard, options) in CASES.items():
        if args.case in name:
            rows = []
            for _ in range(args.crash_reps):
                async with serving(args, "crash") as server:
                    rows.append(await _crash_once(server, hard, options))
            found[name] = {"reps": len(rows), "each": rows}
    return found


async def _crash_once(server: Server, hard: bool, options: dict[str, Any]) -> dict[str, Any]:
    session, log = await new_session(server), server.new_log()
    waiting = [server.new_log(), server.new_log()]
    async with Watch(server, session) as watch:
        turn = await post_turn(server, session, marker(log, **options))
        queued = [
            (await post_turn(server, session, marker(one, events=2))).get("queued")
            for one in waiting
        ]
        await watch.until(PROVIDER | {"provider_session"})
        await asyncio.sleep(1.5)
        helpers = server.helpers()
        began, killed = time.perf_counter(), time.time()
        exited = await server.stop(hard)
        took = time.perf_counter() - began
        gone = await until_gone(log, killed)
        await asyncio.sleep(0.05)
    seen = [row.seq for row in watch.rows if row.seq]
    await asyncio.sleep(max(0, killed + took + 5 - time.time()))
    left, processes = log.living(), log.processes()
    helpers_left = sum(find(pid, born) is not None for pid, born in helpers)
    stored = _stored_seqs(server, session)
    restart = await server.start()
    state, ending = await _after_restart(server, session, turn["run_id"], waiting)
    rest = [event["seq"] for event in await all_events(server, session)]
    still = [kind for (kind, pid), born in processes.items() if find(pid, born)]
    log.reap()
    return {
        "server_exit_s": round(took, 2) if exited else ">20, then SIGKILL",
        "queued_accepted": queued,
        "alive_5s_after_kill": left,
        "helpers": len(helpers),
        "helpers_left_5s": helpers_left,
        "all_gone_after_signal_s": gone["all"] and round(gone["all"], 3),
        "alive_10s_after_restart": still,
        "restart_to_health_s": round(restart, 3),
        "state_after_restart": state,
        "terminal_message": ending.get("message"),
        "ws_seen": len(seen),
        "ws_not_in_rest": len(set(seen) - set(rest)),
        "rest_events": len(rest),
        "rest_lost_dup": gaps(rest, range(1, max(rest) + 1)),
        "stored_at_kill": stored and len(stored),
        "stored_torn": stored and stored.count(None),
        "stored_not_on_ws": stored and len(set(stored) - set(seen)),
    }


async def _after_restart(
    server: Server, session: str, run_id: str, waiting: list[FakeLog]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the server says of the crashed run and the queue at each look, and its ending."""
    healthy = time.time()
    state: dict[str, Any] = {}
    ending: dict[str, Any] = {}
    for at in LOOKS_SECONDS:
        await asyncio.sleep(max(0, healthy + at - time.time()))
        detail = json_of(await server.http.get(f"/api/sessions/{session}?limit=1000"))
        ends = [
            event
            for event in detail["events"]
            if event["type"] in TERMINAL and event.get("run_id") == run_id
        ]
        ending = next(iter(ends), {})
        state[f"{at}s"] = {
            "crashed_run_terminal": [event["type"] for event in ends],
            "queued_turns": len(detail["queued_turns"]),
            "queued_ran": sum(one.first("end") is not None for one in waiting),
        }
    return state, ending


def _stored_seqs(server: Server, session: str) -> list[int | None] | None:
    """Sequence numbers of a chat that is kept as JSON lines; None marks a torn line."""
    path = next((p for p in server.state.rglob("*.jsonl") if session in str(p)), None)
    if path is None:
        return None
    found: list[int | None] = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            found.append(json.loads(line)["seq"])
        except (ValueError, KeyError):
            found.append(None)
    return found
