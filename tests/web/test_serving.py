import re
import resource
import socket
from contextlib import suppress

import pytest
import trio
from fake_dock import CHAT, settings
from fake_house import serving
from wire import masked, read_answer, read_rest, read_upgrade, request, reset, upgrade

from agentsdock import logs
from agentsdock.config import SettingError
from agentsdock.web.connection import Connection, Timing
from agentsdock.web.serve import bind

PAGE = f"/api/sessions/{CHAT}"
TURNS = f"/api/sessions/{CHAT}/turns"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_an_answer_that_announces_the_end_is_followed_by_it(server, version):
    async with await server.connect() as client:
        await client.send_all(request(version=version, Connection="close"))
        assert (await read_answer(client)).status == 200
        assert await client.receive_some() == b""


async def test_a_connection_serves_one_request_after_another(server):
    async with await server.connect() as client:
        for _ in range(3):
            await client.send_all(request())
            assert (await read_answer(client)).status == 200


async def test_requests_sent_ahead_are_answered_in_order(server):
    async with await server.connect() as client:
        await client.send_all(
            request(target="/healthz") + request(target="/nowhere", Connection="close")
        )
        rest = await read_rest(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", rest) == [b"200", b"404"]


async def test_idle_connections_are_closed_after_the_keep_alive_time(server, patient_clock):
    clients = [await server.connect() for _ in range(100)]
    for client in clients:
        await client.send_all(request())
        await read_answer(client)
    began = trio.current_time()
    for client in clients:
        assert await client.receive_some() == b""
        await client.aclose()
    assert 14.9 <= trio.current_time() - began <= 15.5


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_is_not_finished_in_time_ends_the_connection(server, patient_clock, sent):
    async with await server.connect() as client:
        await client.send_all(sent)
        await read_rest(client)
    assert trio.current_time() < 16


async def test_a_request_in_work_is_not_idle(server, patient_clock):
    server.dock.chats.holding = trio.Event()
    async with await server.connect() as client:
        await client.send_all(request("POST", TURNS, b'{"prompt":"x"}'))
        await server.dock.chats.entered.wait()
        await trio.sleep(40)
        server.dock.chats.holding.set()
        assert (await read_answer(client)).status == 200


@pytest.mark.parametrize("leave", [reset, lambda stream: stream.socket.close()])
async def test_a_client_that_leaves_ends_its_request(server, leave):
    server.dock.chats.holding = trio.Event()
    client = await server.connect()
    await client.send_all(request("POST", TURNS, b'{"prompt":"x"}'))
    await server.dock.chats.entered.wait()
    leave(client)
    await server.dock.chats.cancelled.wait()


async def test_garbage_is_answered_with_400_and_closed(server):
    async with await server.connect() as client:
        await client.send_all(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert (await read_rest(client)).startswith(b"HTTP/1.1 400 ")
    assert await answers(server)


async def answers(server):
    async with await server.connect() as client:
        await client.send_all(request(target="/healthz"))
        return (await read_answer(client)).body == b"ok"


async def test_a_head_with_a_browser_full_of_cookies_is_taken(server):
    async with await server.connect() as client:
        head = request(Cookie="x" * 60_000)
        await client.send_all(head[:40_000])
        await trio.testing.wait_all_tasks_blocked()
        await client.send_all(head[40_000:])
        assert (await read_answer(client)).status == 200


async def test_a_head_beyond_its_bound_is_refused(server):
    async with await server.connect() as client:
        await client.send_all(request(X_Large="x" * 200_000))
        assert (await read_rest(client)).startswith(b"HTTP/1.1 431 ")


async def test_http2_is_not_spoken(server):
    async with await server.connect() as client:
        await client.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        assert (await read_rest(client))[:10] in (b"", b"HTTP/1.1 4")
    assert await answers(server)


async def test_an_offer_to_upgrade_to_http2_is_ignored(server):
    async with await server.connect() as client:
        await client.send_all(
            request(Connection="Upgrade, HTTP2-Settings", Upgrade="h2c", HTTP2_Settings="AAMAAABk")
        )
        assert (await read_answer(client)).status == 200


async def test_a_body_of_another_type_is_refused_before_it_is_read(server):
    async with await server.connect() as client:
        await client.send_all(
            request("POST", TURNS, Content_Type="text/plain", Content_Length="9000000")
        )
        answer = await read_answer(client)
    assert (answer.status, server.dock.chats.calls) == (415, [])
    assert answer.headers["connection"] == "close"


async def test_a_refused_client_that_goes_on_sending_gets_its_answer(server):
    async with await server.connect() as client, trio.open_nursery() as nursery:
        size = 8_000_000
        head = request("POST", TURNS, Content_Type="text/plain", Content_Length=str(size))
        nursery.start_soon(client.send_all, head + bytes(size))
        assert (await read_answer(client)).status == 415
        assert await client.receive_some() == b""


async def test_a_refused_client_that_never_stops_sending_is_cut(server):
    async with await server.connect() as client:
        await client.send_all(
            request("POST", TURNS, Content_Type="text/plain", Content_Length="1000000000")
        )
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await client.send_all(bytes(65_536))
    assert await answers(server)


async def test_an_announced_body_beyond_the_limit_is_refused_at_once(server):
    async with await server.connect() as client:
        await client.send_all(
            request("POST", TURNS, Content_Type="application/json", Content_Length="16777217")
        )
        answer = await read_answer(client)
    assert (answer.status, answer.json()) == (
        413,
        {"detail": "the body is larger than 16777216 bytes"},
    )


async def test_an_unannounced_body_is_refused_once_it_passes_the_limit(server):
    async with await server.connect() as client, trio.open_nursery() as nursery:
        head = request("POST", TURNS, Content_Type="application/json", Transfer_Encoding="chunked")
        chunk = b"100000\r\n" + bytes(2**20) + b"\r\n"

        async def send():
            with suppress(trio.BrokenResourceError):
                await client.send_all(head + 17 * chunk)

        nursery.start_soon(send)
        assert (await read_answer(client)).status == 413
    assert await answers(server)


async def test_a_body_that_does_not_arrive_in_time_is_given_up(server, patient_clock):
    async with await server.connect() as client:
        await client.send_all(request("POST", TURNS, b'{"prompt":"x"}')[:-1])
        answer = await read_answer(client)
    assert (answer.status, server.dock.chats.calls) == (408, [])
    assert 59 < trio.current_time() < 61


@pytest.mark.parametrize("size", ["5", "16777217"])
async def test_a_body_that_nobody_asked_for_is_bounded_too(server, size):
    async with await server.connect() as client:
        await client.send_all(request(Content_Length=size) + b"hello")
        assert (await read_answer(client)).status == (200 if size == "5" else 413)


async def test_a_client_that_leaves_while_it_sends_its_body_starts_nothing(server):
    async with await server.connect() as client:
        await client.send_all(request("POST", TURNS, b'{"prompt":"x"}')[:-1])
    assert await answers(server)
    assert server.dock.chats.calls == []


async def test_a_connection_that_fails_harms_no_other(server, monkeypatch):
    async def broken(self):
        monkeypatch.undo()
        raise RuntimeError

    monkeypatch.setattr(Connection, "_read", broken)
    async with await server.connect() as client:
        assert await read_rest(client) == b""
    assert await answers(server)


async def test_a_client_that_left_before_it_was_accepted_is_no_error(dock, monkeypatch):
    said = []
    monkeypatch.setattr(logs.Log, "_write", lambda *line: said.append(line))

    async def leave_early(listeners):
        client = await trio.open_tcp_stream("127.0.0.1", listeners.sockets[0].getsockname()[1])
        reset(client)

    async with serving(dock, before=leave_early) as server:
        assert await answers(server)
    assert said == []


async def test_what_serves_a_client_that_has_left_is_cancelled_in_the_end(dock, patient_clock):
    entered, cancelled = trio.Event(), trio.Event()

    async def deaf(scope, receive, send):
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with serving(dock, app=deaf) as server:
        async with await server.connect() as client:
            await client.send_all(request())
            await entered.wait()
        await cancelled.wait()
        assert trio.current_time() < 2


async def test_a_broken_application_costs_only_its_connection(dock):
    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b":x", b"y")]})

    async with serving(dock, app=broken) as server:
        async with await server.connect() as client:
            await client.send_all(request())
            await read_rest(client)
        async with await server.connect() as client:
            await client.send_all(request())
            await read_rest(client)


async def test_connections_beyond_the_limit_are_closed_at_once(dock, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))
    async with serving(dock) as server:
        clients = [await server.connect() for _ in range(3)]
        for client in clients:
            await client.send_all(request())
            assert (await read_answer(client)).status == 200
        async with await server.connect() as one_too_many:
            assert await read_rest(one_too_many) == b""
        await clients[0].aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await answers(server)
        for client in clients[1:]:
            await client.aclose()


async def test_a_taken_port_is_named():
    held = await bind(settings())
    port = int(held.address.rpartition(":")[2])
    with pytest.raises(SettingError, match=rf"port {port} .*AGENTSDOCK_AGENT_PORT"):
        await bind(settings(port=port))
    for sock in held.sockets:
        sock.close()


async def test_an_address_that_does_not_exist_is_named():
    with pytest.raises(SettingError, match=r"192\.0\.2\.1"):
        await bind(settings(bind="192.0.2.1"))


async def test_what_the_kernel_keeps_for_a_client_is_bounded():
    listeners = await bind(settings())
    (sock,) = listeners.sockets
    with sock:
        assert 200_000 < sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * 256 * 1024
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_every_address_of_a_name_shares_one_port():
    listeners = await bind(settings(bind="localhost"))
    assert len({address.rpartition(":")[2] for address in listeners.addresses}) == 1
    for sock in listeners.sockets:
        sock.close()


async def test_the_next_server_gets_the_port_at_once(dock):
    async with serving(dock) as server:
        async with await server.connect() as client:
            await client.send_all(request())
            await read_answer(client)
            await server.stop()
        for sock in (await bind(settings(port=server.port))).sockets:
            sock.close()


async def test_stopping_closes_idle_connections_and_refuses_new_ones_at_once(server, patient_clock):
    async with await server.connect() as idle, await server.connect() as silent:
        await idle.send_all(request())
        await read_answer(idle)
        await trio.testing.wait_all_tasks_blocked()
        assert await server.stop() < 0.1
        assert await idle.receive_some() == await silent.receive_some() == b""
        with pytest.raises(OSError, match="refused"):
            await server.connect()


async def test_new_connections_are_refused_while_a_request_is_still_in_work(server, patient_clock):
    server.dock.chats.holding = trio.Event()
    async with await server.connect() as client:
        await client.send_all(request("POST", TURNS, b'{"prompt":"x"}'))
        await server.dock.chats.entered.wait()
        server.dock.stopping.set()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match="refused"):
            await server.connect()
        server.dock.chats.holding.set()
        assert (await read_answer(client)).status == 200
        assert await client.receive_some() == b""
    assert trio.current_time() < 1


async def test_a_request_that_does_not_end_is_cut_when_the_drain_time_is_over(
    server, patient_clock
):
    server.dock.chats.holding = trio.Event()
    async with await server.connect() as client:
        await client.send_all(request("POST", TURNS, b'{"prompt":"x"}'))
        await server.dock.chats.entered.wait()
        assert 1.1 < await server.stop() < 1.4
        assert await read_rest(client) == b""


async def test_a_client_that_never_reads_its_answer_cannot_delay_the_exit(server, patient_clock):
    server.dock.chats.page_body = b" " * 20_000_000
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(request(target=PAGE))
        assert await server.stop() < 1.5


async def test_a_client_that_never_reads_its_answer_is_cut_after_the_stall_time(
    server, patient_clock
):
    server.dock.chats.page_body = b" " * 20_000_000
    async with await server.connect(receive_buffer=4096) as client:
        await client.send_all(request(target=PAGE))
        await trio.sleep(12)
        assert len(await read_rest(client)) < 19_000_000
    assert trio.current_time() < 13


async def test_a_large_answer_reaches_a_slow_client_whole(server, patient_clock):
    server.dock.chats.page_body = b" " * 1_500_000
    async with await server.connect(receive_buffer=65_536) as client:
        await client.send_all(request(target=PAGE, Connection="close"))
        got = 0
        while more := await client.receive_some(65_536):
            got += len(more)
            await trio.sleep(0.9)
    assert got > 1_500_000


async def test_a_mixed_crowd_is_out_within_the_promised_time(server):
    server.dock.say(*("x" * 40_000 for _ in range(200)))
    crowd = [await server.connect(receive_buffer=4096) for _ in range(50)]
    for number, client in enumerate(crowd):
        if number % 10 == 0:  # a socket that never reads
            await client.send_all(upgrade())
        elif number % 10 == 1:  # an upload in progress
            head = request("POST", TURNS, Content_Type="application/json", Content_Length="900")
            await client.send_all(head + b'{"prompt"')
        elif number % 10 == 2:  # half a head
            await client.send_all(b"GET / HTT")
        elif number % 10 == 3:  # a socket that sends half a frame
            await client.send_all(upgrade("?after=200"))
            await read_upgrade(client)
            await client.send_all(masked(1, b"half")[:-2])
        else:
            await client.send_all(request())
            await read_answer(client)
    assert await server.stop() < 1.5
    for client in crowd:
        await client.aclose()


async def test_stopping_twice_is_stopping_once(server):
    assert await server.stop() < 1.5
    server.dock.stopping.set()


async def test_a_cancelled_server_leaves_at_once(dock):
    dock.chats.holding = trio.Event()
    async with serving(dock, timing=Timing()) as server, await server.connect() as client:
        await client.send_all(request("POST", TURNS, b'{"prompt":"x"}'))
        await dock.chats.entered.wait()
        server.cancel()
        assert await read_rest(client) == b""
