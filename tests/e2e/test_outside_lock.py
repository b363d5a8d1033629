"""Another program holds the database for a while: requests wait, and nothing else does."""

import time

import apsw
import trio

HELD_SECONDS = 3.0
MOST_HEALTH_SECONDS = 0.25


async def test_a_turn_waits_for_the_lock_while_health_answers(house):
    chat = await house.chat()
    other = apsw.Connection(str(house.server.state_dir / "agentsdock.db"))
    runs, slowest = [], 0.0

    async def turn():
        runs.append(await house.turn(chat, "[[fake]] patient"))

    async with house.follow(chat, query="&visible=true") as socket:
        async with trio.open_nursery() as nursery:
            other.execute("BEGIN IMMEDIATE")
            nursery.start_soon(turn)
            began = time.perf_counter()
            while time.perf_counter() - began < HELD_SECONDS:
                asked = time.perf_counter()
                assert (await house.http.get("/api/health")).status_code == 200
                page = await house.http.get(f"/api/sessions/{chat}")
                assert page.status_code == 200
                assert (await house.http.get("/api/search", params={"q": "patient"})).is_success
                slowest = max(slowest, time.perf_counter() - asked)
            assert not runs
            other.execute("COMMIT")
            other.close()
        while '"type":"turn_finished"' not in (frame := await socket.get_message()):
            pass
        assert runs[0] in frame
    assert slowest < 3 * MOST_HEALTH_SECONDS
    page = (await house.http.get(f"/api/sessions/{chat}")).json()
    assert [event["seq"] for event in page["events"]] == list(range(1, page["latest_seq"] + 1))
