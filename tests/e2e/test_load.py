"""Many turns, many clients, many turns after another: nothing is lost and nothing piles up."""

import json
import os
import pathlib

import psutil
import pytest
import trio
from chaos.cli_program import install_cli
from chaos.witness import Timeline, Witness, read_all

AT_ONCE = 50
IN_A_ROW = 200
WARM_UP = 20
MOST_GROWTH = 8 << 20


@pytest.fixture
def environment(tmp_path):
    program = install_cli(tmp_path, pathlib.Path(__file__).with_name("bad_cli.py"))
    return {
        "CURSOR_BIN": str(program),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
        "AGENTSDOCK_MAX_ACTIVE_AGENT_RUNS": str(AT_ONCE),
        "AGENTSDOCK_WEBSOCKET_STALL_SECONDS": "60",
    }


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


async def all_at_once(house, gate, count, orders):
    """Start turns that go on together, each followed by a client of its own; their witnesses."""
    witnesses = []

    async def start(place):
        chat = await house.chat()
        witness = Witness(chat, per_connection=200 if place % 2 else 10**9)
        witnesses.append(witness)
        following.start_soon(witness.follow, house.server)
        await house.turn(chat, f"[[fake gate={gate} {orders}]]")
        await witness.hear(lambda timeline: timeline.has("process_started"))

    async with trio.open_nursery() as following:
        async with trio.open_nursery() as starting:
            for place in range(count):
                starting.start_soon(start, place)
        health = (await house.http.get("/api/health")).json()
        assert health["active_count"] == count
        opened = os.open(gate, os.O_RDWR)
        for witness in witnesses:
            await witness.hear(lambda timeline: timeline.endings)
        os.close(opened)
        following.cancel_scope.cancel()
    return witnesses


@pytest.mark.parametrize("count", [2, AT_ONCE])
async def test_turns_at_once_lose_nothing(count, house, gate):
    texts = 20_000 // count
    for witness in await all_at_once(house, gate, count, f"events={texts} size=300"):
        timeline = witness.timeline
        (ending,) = timeline.endings.values()
        assert ending["code"] is None
        (run,) = timeline.endings
        assert [text[:7] for text in timeline.texts(run)] == [f"#{n:06d}" for n in range(texts)]
        assert await read_all(house.http, witness.chat) == timeline.events


async def test_a_client_that_stops_reading_holds_up_nobody_and_misses_nothing(house):
    chat = await house.chat()
    steady = Witness(chat)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(steady.follow, house.server)
        async with house.follow(chat, receive_buffer=4096) as stalled:
            await house.turn(chat, "[[fake events=4000 size=4000]]")
            await steady.hear(lambda timeline: timeline.endings)
            late = Timeline()
            while not late.endings:
                late.add(json.loads(await stalled.get_message()))
        nursery.cancel_scope.cancel()
    assert late.events == steady.timeline.events
    assert len(late.events) > 4000


async def test_two_hundred_turns_in_a_row_leave_everything_flat(house):
    server = psutil.Process(house.server.process.pid)
    chat = await house.chat()
    witness = Witness(chat)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(witness.follow, house.server)

        async def play(count):
            for _ in range(count):
                run = await house.turn(chat, "[[fake tools=1 child=setsid]]")
                ended = await witness.hear(lambda timeline, run=run: timeline.endings.get(run))
                assert ended["code"] is None
                assert ended["processes_ended"] == 1

        await play(WARM_UP)
        before = footprint(server)
        await play(IN_A_ROW - WARM_UP)
        after = footprint(server)
        # A probe of the CLI may be under way in any one moment.
        with trio.move_on_after(10):
            while after["descriptors"] > before["descriptors"] + 1:
                await trio.sleep(0.1)
                after = footprint(server)
        nursery.cancel_scope.cancel()
    assert after["processes"] <= before["processes"]
    assert after["zombies"] == 0
    assert after["descriptors"] <= before["descriptors"] + 1
    assert after["memory"] < before["memory"] + MOST_GROWTH


def footprint(server):
    children = server.children(recursive=True)
    return {
        "processes": len(children),
        "zombies": sum(child.status() == psutil.STATUS_ZOMBIE for child in children),
        "descriptors": server.num_fds(),
        "memory": server.memory_info().rss,
    }
