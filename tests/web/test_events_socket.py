import base64
import itertools

import pytest
import trio
from fake_dock import CHAT, FakeDock, json
from fake_house import serving
from trio_websocket import ConnectionClosed
from wire import masked, read_answer, read_rest, read_upgrade, request, reset, split_frames, upgrade

from agentsdock.model.events import Draft
from agentsdock.store.feed import TAIL_BYTES
from agentsdock.web.connection import Timing

RAW = Draft("raw_event", {"raw": "x"})


async def seqs(socket, count):
    return [json(await socket.get_message())["seq"] for _ in range(count)]


async def close_of(socket):
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            await socket.get_message()
    return caught.value.reason.code, caught.value.reason.reason


async def test_a_client_gets_the_backlog_and_then_what_happens(server):
    server.dock.say("one", "two")
    async with server.socket() as socket:
        assert await seqs(socket, 2) == [1, 2]
        server.dock.say("three")
        assert await seqs(socket, 1) == [3]


async def test_frames_are_the_bare_stored_events(server):
    (event,) = server.dock.say("hellö")
    async with server.socket() as socket:
        assert (await socket.get_message()).encode() == event.body


@pytest.mark.parametrize("after", ["1", "1&visible=true", "1&visible=false"])
async def test_a_cursor_is_exclusive(server, after):
    server.dock.say("one", "two")
    async with server.socket(f"?after={after}") as socket:
        assert await seqs(socket, 1) == [2]


async def test_a_negative_cursor_is_the_beginning(server):
    server.dock.say("one")
    async with server.socket("?after=-5") as socket:
        assert await seqs(socket, 1) == [1]


@pytest.mark.parametrize(("query", "first"), [("", 1), ("?visible=false", 1), ("?visible=1", 2)])
async def test_only_a_visible_catch_up_leaves_internal_events_out(server, query, first):
    server.dock.commit(RAW)
    server.dock.say("two")
    async with server.socket(query) as socket:
        assert await seqs(socket, 3 - first) == list(range(first, 3))
        server.dock.commit(RAW)
        assert await seqs(socket, 1) == [3]


async def test_a_long_backlog_comes_whole_whatever_visible_says(server):
    server.dock.say(*map(str, range(3000)))
    async with server.socket() as socket:
        assert await seqs(socket, 3000) == list(range(1, 3001))


async def test_sync_says_that_nothing_is_missing_and_when_the_backlog_is_over(server):
    server.dock.say("one", "two", "three")
    async with server.socket("?after=1&sync=1") as socket:
        messages = [json(await socket.get_message()) for _ in range(4)]
        assert messages[0] == {"type": "sync", "verdict": "ok", "from": 2}
        assert [message.get("seq") for message in messages[1:]] == [2, 3, 3]
        assert messages[3] == {"type": "caught_up", "seq": 3}
        server.dock.say("four")
        assert await seqs(socket, 1) == [4]


async def test_a_long_backlog_is_caught_up_at_its_end(server):
    server.dock.say(*map(str, range(3000)))
    async with server.socket("?sync=1") as socket:
        messages = [json(await socket.get_message()) for _ in range(3002)]
    assert [at for at, message in enumerate(messages) if message["type"] == "caught_up"] == [3001]


@pytest.mark.parametrize("rows", [0, 3])
async def test_sync_without_a_backlog_says_so_at_once(server, rows):
    server.dock.say(*map(str, range(rows)))
    async with server.socket(f"?after={rows}&sync=true") as socket:
        assert json(await socket.get_message()) == {
            "type": "sync",
            "verdict": "ok",
            "from": rows + 1,
        }
        assert json(await socket.get_message()) == {"type": "caught_up", "seq": rows}


async def test_a_hidden_backlog_is_caught_up_too(server):
    server.dock.commit(RAW, RAW)
    async with server.socket("?sync=1&visible=true") as socket:
        assert json(await socket.get_message())["verdict"] == "ok"
        assert json(await socket.get_message()) == {"type": "caught_up", "seq": 2}


async def test_a_cursor_ahead_of_the_chat_is_a_gap_and_hears_what_is_new(server):
    server.dock.say("one", "two")
    async with server.socket("?after=999999&sync=1") as socket:
        assert json(await socket.get_message()) == {"type": "sync", "verdict": "gap", "from": 3}
        assert json(await socket.get_message()) == {"type": "caught_up", "seq": 2}
        server.dock.say("three")
        assert await seqs(socket, 1) == [3]


async def test_without_sync_a_cursor_ahead_hears_what_is_new_too(server):
    server.dock.say("one")
    async with server.socket("?after=9007199254740993") as socket:
        await trio.testing.wait_all_tasks_blocked()
        server.dock.say("two")
        assert await seqs(socket, 1) == [2]


async def test_rows_missing_behind_the_cursor_are_a_gap(server, monkeypatch):
    server.dock.say("one", "two", "three")
    kept = server.dock.store.events[CHAT][2:]

    async def read_from(session_id, after, **_):
        return [row for row in kept if row.seq > after]

    monkeypatch.setattr(server.dock.store, "read_from", read_from)
    async with server.socket("?sync=1") as socket:
        assert json(await socket.get_message()) == {"type": "sync", "verdict": "gap", "from": 3}
        assert await seqs(socket, 1) == [3]


async def status_of(server, query="", chat=CHAT, **headers):
    async with await server.connect() as client:
        await client.send_all(upgrade(query, chat, **headers))
        answer = await read_answer(client)
    return answer.status, answer.json()["detail"]


async def test_an_unknown_chat_is_refused_before_the_socket_opens(server):
    assert await status_of(server, chat="sess_nowhere") == (404, "session not found")


async def test_a_cursor_that_is_no_number_is_refused_before_the_socket_opens(server):
    status, detail = await status_of(server, "?after=abc")
    assert (status, detail[0]["loc"]) == (422, ["query", "after"])


async def test_a_foreign_page_is_refused_before_the_socket_opens(server):
    assert (await status_of(server, Origin="https://evil.invalid"))[0] == 403


async def test_a_page_of_ours_may_open_a_socket(server):
    headers = [(b"origin", server.url.encode())]
    async with server.socket(extra_headers=headers):
        pass


async def test_the_token_is_asked_for_before_the_socket_opens():
    async with serving(FakeDock(token="s3cret")) as server:
        assert await status_of(server) == (401, "unauthorized")
        assert (await status_of(server, chat="sess_nowhere"))[0] == 401
        async with server.socket("?token=s3cret"):
            pass


async def test_a_token_offered_as_a_subprotocol_is_not_echoed():
    coded = base64.urlsafe_b64encode(b"s3cret").rstrip(b"=").decode()
    offers = ["agentsdock-events-v1", f"agentsdock-token.{coded}"]
    async with serving(FakeDock(token="s3cret")) as server:
        async with server.socket(subprotocols=offers) as socket:
            assert socket.subprotocol == "agentsdock-events-v1"
        async with server.socket(subprotocols=offers[1:]) as socket:
            assert socket.subprotocol is None


async def test_a_socket_path_answers_plain_requests_with_404(server):
    async with server.http() as client:
        answer = await client.get(f"/api/sessions/{CHAT}/events")
    assert answer.status_code in (400, 404)


async def test_compression_is_not_agreed_to(server):
    async with await server.connect() as client:
        await client.send_all(upgrade(Sec_WebSocket_Extensions="permessage-deflate"))
        head, _ = await read_upgrade(client)
        assert b"extensions" not in head


async def test_the_end_of_a_chat_closes_its_sockets(server):
    server.dock.say("one")
    async with server.socket() as socket:
        await seqs(socket, 1)
        server.dock.delete()
        assert await close_of(socket) == (4404, "chat deleted")


@pytest.mark.parametrize("after", [0, 5])
async def test_shutdown_closes_sockets_with_1012_and_where_they_were(server, after):
    server.dock.say("one", "two", "three", "four", "five")
    async with server.socket(f"?after={after}") as socket:
        await seqs(socket, 5 - after)
        await trio.testing.wait_all_tasks_blocked()
        server.dock.stopping.set()
        assert await close_of(socket) == (1012, "last_seq=5")
        await server.left.wait()


async def test_clients_that_do_not_answer_a_close_are_not_waited_for(server, patient_clock):
    clients = [await server.connect() for _ in range(20)]
    for client in clients:
        await client.send_all(upgrade())
        await read_upgrade(client)
    assert await server.stop() < 1.3
    for client in clients:
        assert split_frames(await read_rest(client)) == ([(8, b"\x03\xf4last_seq=0")], b"")
        await client.aclose()


async def test_a_closed_socket_waits_a_moment_for_the_answer_of_its_client(server, patient_clock):
    async with await server.connect() as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        server.dock.delete()
        assert split_frames(await client.receive_some())[0][0][0] == 8
        with trio.move_on_after(0.9) as waiting:
            await client.receive_some()
        assert waiting.cancelled_caught
        await client.send_all(masked(8, b"\x11\x34"))
        assert await client.receive_some() == b""
    assert trio.current_time() < 1


async def test_shutdown_in_mid_stream_ends_with_a_whole_frame_and_1012(server):
    async with await server.connect() as client, trio.open_nursery() as nursery:
        await client.send_all(upgrade())
        _, data = await read_upgrade(client)

        async def talk():
            while True:
                server.dock.say("x" * 5000)
                await trio.lowlevel.checkpoint()

        nursery.start_soon(talk)
        while len(data) < 1_000_000:
            data += await client.receive_some()
        server.dock.stopping.set()
        data += await read_rest(client)
        nursery.cancel_scope.cancel()
    frames, rest = split_frames(data)
    *texts, (opcode, payload) = frames
    last = json(texts[-1][1])["seq"]
    assert (opcode, rest) == (8, b"")
    assert payload == b"\x03\xf4last_seq=%d" % last
    assert [json(text)["seq"] for _, text in texts] == list(range(1, last + 1))


async def test_a_failing_handler_closes_with_1011(server, monkeypatch):
    async def read_from(*_, **__):
        raise RuntimeError("a secret")

    server.dock.say("one")
    monkeypatch.setattr(server.dock.store, "read_from", read_from)
    async with server.socket() as socket:
        assert await close_of(socket) == (1011, "internal error")


async def test_a_close_of_the_client_is_answered_and_ends_the_follower(server):
    async with server.socket() as socket:
        await trio.testing.wait_all_tasks_blocked()
        await socket.aclose(1000, "enough")
        assert socket.closed.code == 1000
    await unwatched(server)


async def unwatched(server):
    while server.dock.feed._channels:
        await trio.sleep(0.001)


@pytest.mark.parametrize("leave", [reset, lambda stream: stream.socket.close()])
async def test_a_client_that_vanishes_ends_its_follower(server, leave):
    client = await server.connect()
    await client.send_all(upgrade())
    await read_upgrade(client)
    leave(client)
    await unwatched(server)


async def test_a_client_that_closes_and_stays_is_cut(server, patient_clock):
    async with await server.connect() as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        await client.send_all(masked(8, b"\x03\xe8"))
        assert split_frames(await read_rest(client)) == ([(8, b"\x03\xe8")], b"")
    assert trio.current_time() < 2


async def test_messages_of_the_client_are_read_and_ignored(server):
    async with server.socket() as socket:
        for number in range(100):
            await socket.send_message("hello" if number % 2 else b"")
        server.dock.say("one")
        assert await seqs(socket, 1) == [1]


async def test_a_ping_of_the_client_is_answered(server):
    async with server.socket() as socket:
        await socket.ping(b"there?")


@pytest.mark.parametrize("parts", [1, 8])
async def test_a_message_beyond_64_kib_closes_with_1009(server, patient_clock, parts):
    async with await server.connect() as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        piece = b"x" * (80_000 // parts)
        for part in range(parts):
            await client.send_all(masked(1 if part == 0 else 0, piece, final=part == parts - 1))
        frames, _ = split_frames(await read_rest(client))
    assert frames[0][1][:2] == (1009).to_bytes(2, "big")
    assert trio.current_time() < 2


async def test_no_event_follows_a_close_frame(server, patient_clock):
    async with await server.connect() as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        await client.send_all(masked(1, b"x" * 70_000))
        data = await client.receive_some()
        server.dock.say("too late")
        frames, _ = split_frames(data + await read_rest(client))
    assert [(opcode, payload[:2]) for opcode, payload in frames] == [(8, b"\x03\xf1")]


async def test_a_client_that_floods_after_a_close_is_cut(server):
    async with await server.connect() as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        await client.send_all(masked(1, b"x" * 70_000, final=False))
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await client.send_all(masked(0, b"x" * 60_000, final=False))
    await unwatched(server)


async def test_a_silent_client_is_pinged_and_given_up_after_a_minute(server, patient_clock):
    async with await server.connect() as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        assert split_frames(await read_rest(client)) == ([(9, b"")] * 2, b"")
        assert 59 < trio.current_time() < 62
    await unwatched(server)


async def test_a_client_that_answers_pings_stays(server, patient_clock):
    async with server.socket() as socket:
        await trio.sleep(600)
        server.dock.say("one")
        assert await seqs(socket, 1) == [1]


async def test_frames_and_pings_do_not_mix():
    timing = Timing(ping=0.001)
    dock = FakeDock()
    async with serving(dock, timing) as server, await server.connect() as client:
        await client.send_all(upgrade())
        _, data = await read_upgrade(client)
        frames = []
        for number in itertools.count():
            if number < 300:
                dock.say("x" * (number * 700))
            more, data = split_frames(data)
            frames += more
            for opcode, _ in more:
                if opcode == 9:
                    await client.send_all(masked(10))
            if sum(opcode == 1 for opcode, _ in frames) == 300:
                break
            data += await client.receive_some()
    assert {opcode for opcode, _ in frames} <= {1, 9}
    assert any(opcode == 9 for opcode, _ in frames)
    texts = [json(payload)["seq"] for opcode, payload in frames if opcode == 1]
    assert texts == list(range(1, 301))


def flood(dock, count=700, size=30_000):
    dock.say(*("x" * size for _ in range(count)))


async def test_a_client_that_stops_reading_holds_little_and_is_told_when_it_reads_again(
    server, patient_clock
):
    flood(server.dock)
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        await trio.sleep(15)
        assert server.dock.store.reads * 300_000 < 2_000_000
        frames, rest = split_frames(b"".join([b async for b in endless(client)]))
    *texts, (opcode, payload) = frames
    last = json(texts[-1][1])["seq"]
    assert (opcode, rest, payload) == (8, b"", b"\x03\xf5last_seq=%d" % last)
    assert trio.current_time() < 17
    assert last < 100
    await unwatched(server)


async def test_the_answer_to_a_farewell_is_not_answered_again(server, patient_clock):
    flood(server.dock)
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(upgrade())
        _, data = await read_upgrade(client)
        await trio.sleep(15)
        await client.send_all(masked(8, b"\x03\xf5"))
        frames, rest = split_frames(data + await read_rest(client))
    assert [opcode for opcode, _ in frames].count(8) == 1
    assert (frames[-1][0], rest) == (8, b"")


async def endless(client):
    client.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 2**20)
    yield await read_rest(client)


async def test_a_client_that_never_reads_again_is_cut(server, patient_clock):
    flood(server.dock)
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        await trio.sleep(31)
        await unwatched(server)


async def test_a_client_that_pauses_for_less_than_the_stall_time_misses_nothing(
    server, patient_clock
):
    flood(server.dock, 100)
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(upgrade())
        _, data = await read_upgrade(client)
        await trio.sleep(9)
        seen = []
        while len(seen) < 100:
            data += await client.receive_some()
            frames, data = split_frames(data)
            seen += [json(payload)["seq"] for opcode, payload in frames if opcode == 1]
    assert seen == list(range(1, 101))


async def test_a_slow_reader_that_makes_progress_is_not_stalled(server, patient_clock):
    flood(server.dock, 40)
    async with await server.connect(receive_buffer=65_536) as client:
        await client.send_all(upgrade())
        _, data = await read_upgrade(client)
        seen = 0
        while seen < 40:
            await trio.sleep(1)
            data += await client.receive_some(65_536)
            frames, data = split_frames(data)
            seen += sum(opcode == 1 for opcode, _ in frames)
            if any(opcode == 9 for opcode, _ in frames):
                await client.send_all(masked(10))
        assert not any(opcode == 8 for opcode, _ in frames)


async def test_a_stalled_client_does_not_hold_up_the_others(server):
    async with await server.connect(receive_buffer=4096) as stalled:
        await stalled.send_all(upgrade())
        await read_upgrade(stalled)
        async with server.socket() as socket:
            for number in range(1, 101):
                server.dock.say("x" * 40_000)
                assert await seqs(socket, 1) == [number]


async def test_a_stalled_client_cannot_delay_the_exit(server, patient_clock):
    flood(server.dock)
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        await trio.sleep(2)
        assert await server.stop() < 1.5


async def test_a_client_in_its_farewell_cannot_delay_the_exit(server, patient_clock):
    flood(server.dock)
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(upgrade())
        await read_upgrade(client)
        await trio.sleep(15)
        assert await server.stop() < 1.5


async def test_a_client_that_reconnects_every_200_events_gets_each_once(server):
    async def talk():
        for number in range(4000):
            server.dock.say(str(number))
            if number % 10 == 0:
                await trio.lowlevel.checkpoint()

    seen = [0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        while seen[-1] < 4000:
            async with server.socket(f"?after={seen[-1]}&visible=true") as socket:
                seen += await seqs(socket, min(200, 4000 - seen[-1]))
    assert seen == list(range(4001))


async def test_many_followers_of_a_busy_chat_each_get_everything_once(server):
    total = 2 * TAIL_BYTES // 1000

    async def follow(after):
        async with server.socket(f"?after={after}") as socket:
            got = await seqs(socket, total - after)
        assert got == list(range(after + 1, total + 1))

    server.dock.say(*["x" * 900] * 100)
    async with trio.open_nursery() as nursery:
        for after in (0, 0, 50, 100, 1):
            nursery.start_soon(follow, after)
        for _ in range(total - 100):
            server.dock.say("x" * 900)
            await trio.lowlevel.checkpoint()


async def test_a_request_after_a_refused_upgrade_uses_a_new_connection(server):
    async with await server.connect() as client:
        await client.send_all(upgrade(chat="sess_nowhere"))
        answer = await read_answer(client)
        assert (answer.status, answer.json()) == (404, {"detail": "session not found"})
        assert await client.receive_some() == b""


@pytest.mark.parametrize("changed", [{"Sec_WebSocket_Version": "12"}, {"Sec_WebSocket_Key": None}])
async def test_a_handshake_that_is_none_is_refused(server, changed):
    fields = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
    }
    async with await server.connect() as client:
        target = f"/api/sessions/{CHAT}/events"
        await client.send_all(request(target=target, **(fields | changed)))
        assert (await read_answer(client)).status == 400
