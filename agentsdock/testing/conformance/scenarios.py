"""What a server is asked to prove.  Each scenario uses chats of its own and deletes them."""

import secrets
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import trio
from attrs import define, field, frozen

from agentsdock.testing.conformance.checker import (
    CHAT_GONE,
    TERMINAL_TYPES,
    Timeline,
    Violation,
    check_seen,
)
from agentsdock.testing.conformance.socket import Refused, Socket, open_socket

Json = dict[str, Any]

GOING_DOWN = 1012
TRY_AGAIN_LATER = 1013
SCENARIO_SECONDS = 120.0
QUIET_SECONDS = 0.2
"""For how long nothing must come where nothing may come."""
PAUSE_SECONDS = 0.1
"""Before the next connection, where the server has ended one."""
RECONNECT_EVERY = 3
SLOW_SECONDS = 2.0
"""For how long a slow reader takes nothing once all has been said."""
SILENCE_SECONDS = 15.0
SLOW_BUFFER = 64 * 1024


class Broken(Exception):
    """The scenario cannot go on: the server did something else than it has to."""


@frozen
class Server:
    """Where the server is and how to make it work.

    ``turn`` is a body of a turn that ends by itself after several events, ``long_turn`` of one
    that goes on until it is stopped (None: what stops is not asked).  ``flood`` is one that says
    more than sockets hold, some megabytes (None: ``turn`` has to do).  ``restart`` ends the server
    and starts it again at the same address (None: no restart is asked for).
    """

    url: str
    token: str | None = None
    backend: str = "cursor"
    turn: Json = field(factory=lambda: {"prompt": "Reply with the single word: ok"})
    long_turn: Json | None = None
    flood: Json | None = None
    restart: Callable[[], Awaitable[None]] | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"X-AgentsDock-Token": self.token} if self.token else {}


@define
class Probe:
    """One scenario at work: requests, sockets, and what was found."""

    server: Server
    http: httpx.AsyncClient
    violations: list[Violation] = field(factory=list)

    def expect(self, holds: object, rule: str, message: str) -> None:
        if not holds:
            self.violations.append(Violation(rule, message))

    async def call(self, method: str, path: str, **options: Any) -> Json:
        answer = await self.http.request(method, path, **options)
        if not answer.is_success:
            raise Broken(f"{method} {path} answered {answer.status_code}: {answer.text[:200]}")
        body: Json = answer.json()
        return body

    @asynccontextmanager
    async def chat(self) -> AsyncIterator[str]:
        body = {"title": "conformance", "backend": self.server.backend}
        made: str = (await self.call("POST", "/api/sessions", json=body))["session"]["id"]
        try:
            yield made
        finally:
            with trio.move_on_after(30, shield=True):
                await self.http.delete(f"/api/sessions/{made}")

    async def begin(self, chat: str, turn: Json, **headers: str) -> Json:
        path = f"/api/sessions/{chat}/turns"
        return await self.call("POST", path, json=turn, headers=headers)

    async def stop(self, chat: str) -> Json:
        return await self.call("POST", f"/api/sessions/{chat}/stop", json={})

    @asynccontextmanager
    async def follow(
        self, chat: str, after: int, *, receive_buffer: int | None = None, **query: object
    ) -> AsyncIterator[Socket]:
        path = f"/api/sessions/{urllib.parse.quote(chat)}/events"
        headers = self.server.headers
        async with open_socket(
            self.server.url,
            path,
            headers,
            receive_buffer=receive_buffer,
            after=after,
            visible="false",
            **query,
        ) as socket:
            yield socket

    async def hear(self, chat: str, timeline: Timeline, *, most: int | None = None) -> bool:
        """Follow until every run has ended, or for ``most`` events; whether all is over.

        What comes within a moment after the end is heard too.
        """
        async with self.follow(chat, timeline.last) as socket:
            heard = 0
            while most is None or heard < most:
                event = await socket.next()
                if event is None:
                    await trio.sleep(PAUSE_SECONDS)
                    return False
                timeline.see(event)
                heard += 1
                if event.get("type") in TERMINAL_TYPES and not timeline.open_runs:
                    with trio.move_on_after(QUIET_SECONDS):
                        while (event := await socket.next()) is not None:
                            timeline.see(event)
                    return True
        return False

    async def pages(self, chat: str) -> list[Json]:
        """The whole chat, by its pages."""
        found: list[Json] = []
        while True:
            query = f"after={found[-1]['seq'] if found else 0}&limit=200&visible=false&tail=false"
            page = await self.call("GET", f"/api/sessions/{chat}?{query}")
            if not page["events"]:
                return found
            found += page["events"]


Scenario = Callable[[Probe], Awaitable[None]]


async def a_turn_is_told_once_and_in_order(probe: Probe) -> None:
    async with probe.chat() as chat:
        timeline = Timeline()
        run = (await probe.begin(chat, probe.server.turn)).get("run_id")
        while not await probe.hear(chat, timeline):
            pass
        probe.violations += timeline.ended()
        told = [event for event in timeline.events if event["type"] in TERMINAL_TYPES]
        probe.expect([e.get("run_id") for e in told] == [run], "terminal", f"of {run}: {told}")


async def pages_and_sockets_tell_the_same(probe: Probe) -> None:
    async with probe.chat() as chat:
        timeline = Timeline()
        await probe.begin(chat, probe.server.turn)
        while not await probe.hear(chat, timeline):
            pass
        probe.violations += check_seen(timeline.events, await probe.pages(chat))


async def who_reconnects_after_every_few_events_loses_none(probe: Probe) -> None:
    async with probe.chat() as chat:
        timeline = Timeline()
        await probe.begin(chat, probe.server.turn)
        while not await probe.hear(chat, timeline, most=RECONNECT_EVERY):
            pass
        probe.violations += timeline.ended()
        probe.violations += check_seen(timeline.events, await probe.pages(chat))


async def a_slow_reader_holds_nobody_up_and_loses_nothing(probe: Probe) -> None:
    async with probe.chat() as chat:
        slow, quick = Timeline(), Timeline()
        async with probe.follow(chat, 0, receive_buffer=SLOW_BUFFER) as socket:
            await probe.begin(chat, probe.server.flood or probe.server.turn)
            while not await probe.hear(chat, quick):
                pass
            await trio.sleep(SLOW_SECONDS)
            await _read_late(probe, socket, slow, quick.last)
        while slow.last < quick.last and not await probe.hear(chat, slow):
            pass
        probe.violations += slow.ended()
        probe.violations += check_seen(slow.events, quick.events)


async def _read_late(probe: Probe, socket: Socket, timeline: Timeline, last: int) -> None:
    """What was kept waiting comes, or the socket says where it ends; it is never just silent."""
    while timeline.last < last:
        with trio.move_on_after(SILENCE_SECONDS) as silence:
            event = await socket.next()
        if silence.cancelled_caught:
            probe.expect(False, "close", f"open, and silent after {timeline.last} of {last}")
            return
        if event is None:
            break
        timeline.see(event)
    if socket.close_code is not None:
        code, reason = socket.close_code, socket.close_reason
        right = (TRY_AGAIN_LATER, f"last_seq={timeline.last}")
        probe.expect((code, reason) == right, "close", f"closed with {code, reason}, not {right}")


async def each_cursor_gives_what_follows_it(probe: Probe) -> None:
    async with probe.chat() as chat:
        timeline = Timeline()
        await probe.begin(chat, probe.server.turn)
        while not await probe.hear(chat, timeline):
            pass
        last = timeline.last
        for after in {0, 1, last // 2, last - 1}:
            async with probe.follow(chat, after) as socket:
                event = await socket.next()
                seq = event and event.get("seq")
                probe.expect(seq == after + 1, "order", f"after {after} came {seq}")
        async with probe.follow(chat, last) as socket:
            with trio.move_on_after(QUIET_SECONDS):
                event = await socket.next()
                probe.expect(False, "doubled", f"after the last event, {last}, came {event}")


async def a_cursor_gets_its_verdict(probe: Probe) -> None:
    async with probe.chat() as chat:
        timeline = Timeline()
        await probe.begin(chat, probe.server.turn)
        while not await probe.hear(chat, timeline):
            pass
        last = timeline.last
        cursors = ((0, "ok", 1), (last, "ok", last + 1), (last + 9, "gap", last + 1))
        for after, verdict, first in cursors:
            right = {"type": "sync", "verdict": verdict, "from": first}
            async with probe.follow(chat, after, sync=1) as socket:
                told = await socket.next()
                message = f"after {after} of {last} came {told}, not {right}"
                probe.expect(told == right, "verdict", message)
        async with probe.follow(chat, 0, sync=1) as socket:
            frames = [await socket.next() or {} for _ in range(last + 2)]
            right = {"type": "caught_up", "seq": last}
            message = f"the backlog ends with {frames[-1]}, not {right}"
            probe.expect(frames[-1] == right, "verdict", message)


async def a_repeated_request_is_one_turn(probe: Probe) -> None:
    async with probe.chat() as chat:
        key = {"Idempotency-Key": secrets.token_hex(16)}
        first = await probe.begin(chat, probe.server.turn, **key)
        second = await probe.begin(chat, probe.server.turn, **key)
        same = first.get("run_id") == second.get("run_id")
        probe.expect(same, "doubled", f"one key, two runs: {first} and {second}")
        timeline = Timeline()
        while not await probe.hear(chat, timeline):
            pass
        started = sum(event["type"] == "turn_started" for event in timeline.events)
        probe.expect(started == 1, "doubled", f"{started} runs began")
        probe.violations += timeline.ended()


async def strangers_are_refused_before_the_upgrade(probe: Probe) -> None:
    async with probe.chat() as chat:
        asked = [("sess_ffffffffffffffff", probe.server.headers, 404)]
        if probe.server.token:
            asked += [(chat, {}, 401), (chat, {"X-AgentsDock-Token": "wrong"}, 401)]
        for name, headers, status in asked:
            path = f"/api/sessions/{name}/events"
            try:
                async with open_socket(probe.server.url, path, headers, after=0):
                    probe.expect(False, "refusal", f"a socket was opened instead of {status}")
            except Refused as refused:
                right = refused.status == status
                probe.expect(right, "refusal", f"status {refused.status} instead of {status}")


async def a_stop_is_one_ending(probe: Probe) -> None:
    assert probe.server.long_turn is not None
    async with probe.chat() as chat:
        timeline = Timeline()
        await probe.begin(chat, probe.server.long_turn)
        for _ in range(3):
            answer = await probe.stop(chat)
            stopped = answer.get("stopped", answer.get("ok", True))
            probe.expect(stopped, "stop", f"a stop answered {answer}")
        while not await probe.hear(chat, timeline):
            pass
        ending = timeline.events[-1]
        probe.expect(ending.get("stopped") is True, "stop", f"the turn ended as {ending}")
        probe.violations += timeline.ended()
        probe.violations += check_seen(timeline.events, await probe.pages(chat))


async def a_deleted_chat_closes_its_sockets(probe: Probe) -> None:
    async with probe.chat() as chat, probe.follow(chat, 0) as socket:
        await probe.call("DELETE", f"/api/sessions/{chat}")
        while await socket.next() is not None:
            pass
        code = socket.close_code
        probe.expect(code == CHAT_GONE, "close", f"closed with {code}, not {CHAT_GONE}")


async def _restart_under(probe: Probe, chat: str, timeline: Timeline) -> None:
    """While somebody follows: a crash ends the socket, a shutdown says where it ends."""
    assert probe.server.restart is not None
    async with probe.follow(chat, timeline.last) as socket:
        await probe.server.restart()
        while (event := await socket.next()) is not None:
            timeline.see(event)
        code, reason = socket.close_code, socket.close_reason
    if code is not None:
        right = (GOING_DOWN, f"last_seq={timeline.last}")
        probe.expect((code, reason) == right, "close", f"closed with {code, reason}, not {right}")


async def a_restart_loses_nothing(probe: Probe) -> None:
    assert probe.server.restart is not None
    async with probe.chat() as chat:
        timeline = Timeline()
        await probe.begin(chat, probe.server.turn)
        while not await probe.hear(chat, timeline):
            pass
        if probe.server.long_turn is not None:
            await probe.begin(chat, probe.server.long_turn)
            await probe.hear(chat, timeline, most=2)
        await _restart_under(probe, chat, timeline)
        probe.violations += check_seen(
            timeline.events, [e for e in await probe.pages(chat) if e["seq"] <= timeline.last]
        )
        while timeline.open_runs and not await probe.hear(chat, timeline):
            pass
        probe.violations += timeline.ended()
        await probe.begin(chat, probe.server.turn)
        while not await probe.hear(chat, timeline):
            pass
        probe.violations += timeline.ended()


SCENARIOS: tuple[Scenario, ...] = (
    a_turn_is_told_once_and_in_order,
    pages_and_sockets_tell_the_same,
    who_reconnects_after_every_few_events_loses_none,
    a_slow_reader_holds_nobody_up_and_loses_nothing,
    each_cursor_gives_what_follows_it,
    a_cursor_gets_its_verdict,
    a_repeated_request_is_one_turn,
    strangers_are_refused_before_the_upgrade,
    a_deleted_chat_closes_its_sockets,
    a_stop_is_one_ending,
    a_restart_loses_nothing,
)


@frozen
class Result:
    """How a scenario went; ``skipped`` says why it was not asked."""

    name: str
    violations: tuple[Violation, ...] = ()
    skipped: str | None = None

    @property
    def passed(self) -> bool:
        return not self.violations


async def run_scenarios(
    server: Server,
    scenarios: Sequence[Scenario] = SCENARIOS,
    told: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Ask them one after the other; ``told`` hears each result at once."""
    results = []
    for scenario in scenarios:
        result = await _ask(server, scenario)
        told(result)
        results.append(result)
    return results


async def _ask(server: Server, scenario: Scenario) -> Result:
    name = scenario.__name__.replace("_", " ")
    if scenario is a_stop_is_one_ending and server.long_turn is None:
        return Result(name, skipped="no long turn was given")
    if scenario is a_restart_loses_nothing and server.restart is None:
        return Result(name, skipped="no way to restart the server was given")
    http = httpx.AsyncClient(
        base_url=server.url, headers=server.headers, timeout=60, trust_env=False
    )
    async with http:
        probe = Probe(server, http)
        try:
            with trio.fail_after(SCENARIO_SECONDS):
                await scenario(probe)
        except (Broken, Refused, OSError, httpx.HTTPError) as error:
            probe.violations.append(Violation("request", str(error) or type(error).__name__))
        except trio.TooSlowError:
            late = f"not over within {SCENARIO_SECONDS:g} seconds"
            probe.violations.append(Violation("terminal", late))
    return Result(name, tuple(probe.violations))
