"""Agents that break their contract, and one turn more than may run."""

import argparse
import asyncio
import collections
from typing import Any

from benchmarks.driver.api import TERMINAL, Watch, all_events, marker, new_session, one_turn
from benchmarks.driver.server import Server, serving

CASES: dict[str, dict[str, Any]] = {
    "1 MB garbage line": {"garbage": 1048576},
    "5 non-JSON lines": {"nonjson": 5},
    "invalid UTF-8": {"badutf8": 1},
    "10 MB stderr": {"stderr": 10485760},
    "40 MB stderr": {"stderr": 41943040},
    "20 MB JSON line": {"events": 1, "size": 20971520},
    "no newline at end": {"nonl": 1},
    "no init": {"noinit": 1},
    "no result": {"noresult": 1},
    "no events, no result": {"events": 0, "noresult": 1},
    "is_error": {"error": 1},
    "is_error, subtype success": {"error": 1, "subtype": "success"},
    "is_error, subtype error_max_turns": {"error": 1, "subtype": "error_max_turns"},
    "exit 3 after success result": {"exit": 3},
    "exit 3, stderr, no result": {"exit": 3, "stderr": 2000, "noresult": 1},
    "result, then never exits": {"linger": -1},
    "result, child holds stdout": {"child": "plain", "holdpipe": 1},
    "result, daemon holds stdout": {"child": "setsid", "holdpipe": 1},
    "result, child left behind": {"child": "plain,setsid"},
    "hang after init": {"hang": 1},
}
CAP = 2


async def bad(args: argparse.Namespace) -> dict[str, Any]:
    """What a client is told of each fault, and when."""
    async with serving(args, "bad") as server:
        return {
            name: await _fault(server, options)
            for name, options in CASES.items()
            if args.case in name
        }


async def _fault(server: Server, options: dict[str, Any]) -> dict[str, Any]:
    wait, session = server.args.fault_wait, await new_session(server)
    async with Watch(server, session) as watch:
        turn = await one_turn(server, session, watch, timeout=wait, **options)
        await asyncio.sleep(0.5)
        left = turn.log.living()
        if turn.end is None:
            await server.http.post(f"/api/sessions/{session}/stop")
            await watch.until(TERMINAL, turn.run_id, 15)
    turn.log.reap()
    ends = [event for event in watch.events if event["type"] in TERMINAL]
    last = ends[-1] if ends else {}
    return {
        "ended_alone": turn.end is not None,
        "seconds": f">{wait}" if turn.end is None else round(turn.end - turn.posting, 3),
        "terminal": [event["type"] for event in ends],
        "code": last.get("code"),
        "exit_code": last.get("exit_code"),
        "stopped": last.get("stopped"),
        "status": last.get("status"),
        "result_text": str(last.get("result_text"))[:60],
        "errors": [str(e.get("message"))[:160] for e in watch.events if e["type"] == "error"],
        "alive_after_end": left,
        "events": dict(collections.Counter(event["type"] for event in watch.events)),
        "texts": [
            str(event.get("text"))[:40]
            for event in watch.events
            if event["type"] == "assistant_text"
        ][:2],
        "rss_MB": round(server.rss()[0], 1),
    }


async def cap(args: argparse.Namespace) -> dict[str, Any]:
    """One turn more than the cap on live turns allows."""
    limited = argparse.Namespace(**{**vars(args), "cap": CAP})
    async with serving(limited, "cap") as server:
        replies = []
        for _ in range(CAP + 1):
            session = await new_session(server)
            prompt = marker(server.new_log(), events=100, delay=0.01)
            reply = await server.http.post(
                f"/api/sessions/{session}/turns", json={"prompt": prompt}
            )
            body = reply.json()
            replies.append(
                {
                    "status": reply.status_code,
                    "queued": body.get("queued"),
                    "detail": body.get("detail"),
                }
            )
            await asyncio.sleep(0.2)
        await asyncio.sleep(3)
        events = [event["type"] for event in await all_events(server, session)]
        return {"cap": CAP, "replies": replies, "third_chat_events_3s_later": events}
