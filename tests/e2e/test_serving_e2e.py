import base64
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import trio
from trio_websocket import ConnectionClosed

from agentsdock.testing.server import running_server

EXIT_SECONDS = 5
"""What a loaded test machine may take; the server itself promises less."""


async def end(house):
    began = time.monotonic()
    house.server.process.terminate()
    status = await trio.to_thread.run_sync(house.server.process.wait, 30)
    assert "Traceback" not in house.log
    return status, time.monotonic() - began


async def test_sigterm_with_a_crowd_of_clients_in_mid_turn_is_a_clean_and_quick_exit(house):
    chat = await house.chat()
    await house.turn(chat, "[[fake events=2000 size=20000 hang=1 child=setsid,term]]")
    crowd = []
    upgrade = (
        f"GET /api/sessions/{chat}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"X-AgentsDock-Token: {house.server.token}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    upload = (
        f"POST /api/sessions/{chat}/turns HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"X-AgentsDock-Token: {house.server.token}\r\nContent-Type: application/json\r\n"
        'Content-Length: 1000\r\n\r\n{"prompt":"'
    )
    for number in range(50):
        client = await house.connect(receive_buffer=4096)
        await client.send_all([upgrade, upload, "GET / HT", ""][number % 4].encode())
        crowd.append(client)
    async with house.follow(chat) as socket:
        await socket.get_message()
        status, seconds = await end(house)
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                await socket.get_message()
    assert caught.value.reason.code == 1012
    assert status == 0
    assert seconds < EXIT_SECONDS
    for client in crowd:
        await client.aclose()


async def test_a_second_sigterm_changes_nothing(house):
    chat = await house.chat()
    await house.turn(chat, "[[fake hang=1 ignoreterm=1]]")
    house.server.process.send_signal(signal.SIGTERM)
    status, seconds = await end(house)
    assert status == 0
    assert seconds < EXIT_SECONDS


async def test_clients_are_refused_once_the_server_is_going_down(house):
    chat = await house.chat()
    await house.turn(chat, "[[fake hang=1 ignoreterm=1]]")
    assert (await end(house))[0] == 0
    with pytest.raises(OSError, match="refused"):
        await house.connect()


def test_a_restarted_server_has_its_port_and_identity_back(environment, tmp_path):
    import httpx

    def health(server):
        with httpx.Client(trust_env=False) as client:
            return client.get(f"{server.url}/api/health").json()

    with running_server(tmp_path / "state", environment) as server:
        first = health(server)
        port = int(server.url.rpartition(":")[2])
    with running_server(tmp_path / "state", environment, port=port) as server:
        second = health(server)
    assert first["server_identity"] == second["server_identity"]
    assert first["server_instance_id"] != second["server_instance_id"]


def test_a_taken_port_stops_the_start_and_is_named(environment, tmp_path):
    with running_server(tmp_path / "one", environment) as server:
        port = server.url.rpartition(":")[2]
        command = [sys.executable, "-m", "agentsdock", "serve", "--port", port]
        second = subprocess.run(
            [*command, "--state-dir", str(tmp_path / "two")],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert second.returncode == 2
    assert f"port {port}" in second.stderr
    assert "Traceback" not in second.stderr


async def test_the_token_is_in_no_file_and_no_line_of_the_log(house, tmp_path):
    token = house.server.token
    chat = await house.chat()
    coded = base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()
    for path in ("/api/health", "/api/nowhere", "/healthz", f"/api/sessions/{chat}/turns"):
        for query in (f"?token={token}", f"?a=1&%74oken={token}&b=2", f"?TOKEN={token}"):
            await house.http.get(path + query, headers={"Referer": f"http://x/{query}"})
    async with await house.connect() as client:
        await client.send_all(f"GET /api/sessions/{chat}/events?token={token} HT".encode())
    async with await house.connect() as client:
        await client.send_all(
            f"GET /api/sessions/sess_nowhere/events?token={token} HTTP/1.1\r\nHost: localhost\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: agentsdock-events-v1, agentsdock-token.{coded}\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        refusal = await client.receive_some()
    assert refusal.startswith(b"HTTP/1.1 404 ")
    await house.turn(chat, "[[fake]]")
    assert (await end(house))[0] == 0
    for place in pathlib.Path(tmp_path / "state").rglob("*"):
        if place.is_file() and place.name != "token":
            data = place.read_bytes()
            assert token.encode() not in data, place
            assert coded.encode() not in data, place


async def test_a_turn_is_followed_by_all_sorts_of_clients_without_loss(house):
    chat = await house.chat()
    count = 1500
    seen = {"steady": [], "reconnecting": []}

    async def steady():
        async with house.follow(chat) as socket:
            while True:
                event = json.loads(await socket.get_message())
                seen["steady"].append(event["seq"])
                if event["type"] == "turn_finished":
                    return

    async def reconnecting():
        last, done = 0, False
        while not done:
            async with house.follow(chat, last, query="&visible=true") as socket:
                for _ in range(200):
                    event = json.loads(await socket.get_message())
                    last = event["seq"]
                    seen["reconnecting"].append(last)
                    done = event["type"] == "turn_finished"
                    if done:
                        break

    async with await house.connect(receive_buffer=4096) as stalled:
        await stalled.send_all(
            f"GET /api/sessions/{chat}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"X-AgentsDock-Token: {house.server.token}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        await stalled.receive_some(64)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(steady)
            nursery.start_soon(reconnecting)
            await house.turn(chat, f"[[fake events={count} size=8000]]")
    page = (await house.http.get(f"/api/sessions/{chat}?limit=1")).json()
    every = list(range(1, page["latest_seq"] + 1))
    assert page["latest_seq"] > count
    assert seen["steady"] == every
    assert seen["reconnecting"] == every
