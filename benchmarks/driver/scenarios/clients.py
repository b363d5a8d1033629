"""Clients that break off, and clients that stop reading."""

import argparse
import asyncio
import itertools
import json
import time
from typing import Any

import websockets

from benchmarks.driver.api import (
    TERMINAL,
    Watch,
    all_events,
    marker,
    new_session,
    one_turn,
    post_turn,
)
from benchmarks.driver.sampling import Sampler
from benchmarks.driver.server import Server, serving
from benchmarks.driver.stats import gaps, plain, spread

EVENTS_A_CONNECTION = 200
QUIET_SECONDS = 3
QUIET_TIMES = 5


async def reconnect(args: argparse.Namespace) -> dict[str, Any]:
    """A client that is cut off every 200 events and goes on after the last one."""
    found = {}
    async with serving(args, "reconnect") as server:
        for name, full in (("visible=false", True), ("without visible", False)):
            rows = [await _reconnect_once(server, full) for _ in range(args.heavy_reps)]
            found[name] = {
                "runs": len(rows),
                "events": [row["events"] for row in rows],
                "reconnects": [row["reconnects"] for row in rows],
                "lost": [row["lost"] for row in rows],
                "duplicated": [row["doubled"] for row in rows],
                "out_of_order": [row["disorder"] for row in rows],
                "seconds": [row["seconds"] for row in rows],
                "connect_to_first_event_ms": spread(
                    [seconds for row in rows for seconds in row["first"]]
                ),
            }
    return found


class _Broken:
    """What a client saw over all of its connections."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.seqs: list[int] = []
        self.first: list[float] = []
        self.connections = self.quiet = 0
        self.finished = False

    async def connection(self, server: Server, session: str, full: bool) -> None:
        after = self.seqs[-1] if self.seqs else 0
        watch = await Watch(server, session, after=after, full=full).open()
        self.connections += 1
        began = time.perf_counter()
        try:
            for index in range(EVENTS_A_CONNECTION):
                event = json.loads(await asyncio.wait_for(watch.ws.recv(), QUIET_SECONDS))
                if index == 0:
                    self.first.append(time.perf_counter() - began)
                if event.get("seq"):  # passing events carry no number
                    self.seqs.append(event["seq"])
                self.finished |= event["type"] in TERMINAL and event.get("run_id") == self._run_id
        except TimeoutError:
            self.quiet += 1
        except websockets.ConnectionClosed:
            pass
        watch.ws.transport.abort()  # cut off, without a goodbye


async def _reconnect_once(server: Server, full: bool) -> dict[str, Any]:
    session = await new_session(server)
    orders = marker(server.new_log(), events=5000, size=200, delay=0.0005)
    turn = await post_turn(server, session, orders)
    client, began = _Broken(turn["run_id"]), time.perf_counter()
    while time.perf_counter() - began < 120 and not (client.finished and client.quiet):
        await client.connection(server, session, full)
        if client.quiet > QUIET_TIMES:
            break
    wanted = [event["seq"] for event in await all_events(server, session)]
    lost, doubled = gaps(client.seqs, wanted)
    return {
        "events": len(wanted),
        "reconnects": client.connections - 1,
        "lost": lost,
        "doubled": doubled,
        "disorder": sum(b <= a for a, b in itertools.pairwise(client.seqs)),
        "first": client.first,
        "seconds": round(time.perf_counter() - began, 1),
    }


async def slow_client(args: argparse.Namespace) -> dict[str, Any]:
    """One client that stops reading: does it slow the turn, what does it cost, is it told?"""
    found = {}
    async with serving(args, "slow") as server:
        for name, stalled in (("alone", False), ("with one stalled client", True)):
            rows = [await _slow_once(server, stalled) for _ in range(args.heavy_reps)]
            found[name] = {
                "turn_s": plain([row["seconds"] for row in rows]),
                "rss_growth_MB": plain([row["growth"] for row in rows], 1),
                "stalled_client": [row["told"] for row in rows if row["told"]],
            }
    return found


async def _slow_once(server: Server, stalled: bool) -> dict[str, Any]:
    session, told = await new_session(server), None
    async with Watch(server, session, keep=False) as watch:
        slow = await Watch(server, session, max_queue=1).open() if stalled else None
        before = server.rss()[0]
        async with Sampler(server) as sample:
            turn = await one_turn(server, session, watch, events=1500, size=16384)
        seconds = (turn.end or time.time()) - turn.posting
        if slow is not None:
            await asyncio.sleep(server.args.stall)
            told = {**await _read_on(slow), "of": len(watch.rows)}
            await slow.ws.close()
    return {"seconds": seconds, "growth": sample.own - before, "told": told}


async def _read_on(slow: Watch) -> dict[str, Any]:
    """What a stalled client gets once it reads again, and how it is closed, if it is."""
    received, last = 0, None
    closed: str | bool = False
    try:
        while True:
            event = json.loads(await asyncio.wait_for(slow.ws.recv(), QUIET_SECONDS))
            received, last = received + 1, event["type"]
    except TimeoutError:
        pass
    except websockets.ConnectionClosed as error:
        closed = str(error)[:80]
    return {"received": received, "last": last, "closed": closed}
