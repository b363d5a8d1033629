import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from wire import split_frames

from agentsdock.web import frames
from agentsdock.web.connection import Connection, Gone, Slow, Timing

FAREWELL = frames.close(1013, "last_seq=1")


@pytest.fixture
async def pair():
    ours, theirs = trio.socket.socketpair()
    ours.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, 4096)
    connection = Connection(ours, None, Config(), WorkerContext(None), Timing())
    with ours, theirs:
        yield connection, theirs


async def drained(sock):
    data = b""
    while more := await sock.recv(65_536):
        data += more
    return data


async def test_a_send_that_is_cancelled_between_frames_leaves_the_connection_usable(pair):
    connection, client = pair
    with trio.CancelScope() as scope:
        scope.cancel()
        await connection.send_frames(frames.text(b"never"), FAREWELL)
    await connection.send_frames(frames.text(b"then"), FAREWELL)
    assert split_frames(await client.recv(100)) == ([(1, b"then")], b"")


async def test_a_send_that_is_cancelled_within_a_frame_cuts_the_connection(pair, autojump_clock):
    connection, client = pair
    with trio.move_on_after(1):
        await connection.send_frames(frames.text(b"x" * 1_000_000), FAREWELL)
    with pytest.raises(Gone):
        await connection.send_frames(frames.text(b"then"), FAREWELL)
    whole, rest = split_frames(await drained(client))
    assert whole == []
    assert rest


async def test_a_stalled_send_finishes_its_frame_before_the_farewell(pair, autojump_clock):
    connection, client = pair
    data = b""

    async def read_late():
        nonlocal data
        await trio.sleep(15)
        while not data.endswith(FAREWELL):
            data += await client.recv(65_536)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_late)
        with pytest.raises(Slow):
            await connection.send_frames(frames.text(b"x" * 1_000_000), FAREWELL)
    assert [opcode for opcode, _ in split_frames(data)[0]] == [1, 8]
    with pytest.raises(Gone):
        await connection.send_frames(frames.text(b"then"), FAREWELL)


async def test_a_stalled_send_gives_up_after_the_farewell_time(pair, autojump_clock):
    connection, _ = pair
    with pytest.raises(Slow):
        await connection.send_frames(frames.text(b"x" * 1_000_000), FAREWELL)
    assert trio.current_time() == 30


async def test_a_socket_closed_during_a_send_ends_it(pair, autojump_clock):
    connection, _ = pair
    async with trio.open_nursery() as nursery:

        async def cut():
            await trio.sleep(1)
            connection.abort()

        nursery.start_soon(cut)
        with pytest.raises(Gone):
            await connection.send_frames(frames.text(b"x" * 1_000_000), FAREWELL)


async def test_a_client_that_leaves_during_a_send_ends_it(pair, autojump_clock):
    connection, client = pair
    async with trio.open_nursery() as nursery:

        async def leave():
            await trio.sleep(1)
            client.close()

        nursery.start_soon(leave)
        with pytest.raises(Gone):
            await connection.send_frames(frames.text(b"x" * 1_000_000), FAREWELL)


async def test_senders_take_turns_and_never_mix(pair):
    connection, client = pair
    data = b""
    async with trio.open_nursery() as nursery:
        for letter in b"abcdef":
            text = frames.text(bytes([letter]) * 20_000)
            nursery.start_soon(connection.send_frames, text, FAREWELL)
        while len(data) < 6 * 20_004:
            data += await client.recv(65_536)
    whole, rest = split_frames(data)
    assert rest == b""
    assert sorted({payload[:1] * 20_000 for _, payload in whole}) == sorted(
        payload for _, payload in whole
    )
