"""The body of an upload: taken at the client's pace, unless that is none."""

import pytest
import trio

from agentsdock.model.errors import Unprocessable
from agentsdock.web import uploads
from agentsdock.web.uploads import ClientLeft, Form, UploadStalled

HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
TAIL = b"\r\n--x--\r\n"


class Client:
    """Sends pieces, each after a time."""

    def __init__(self, *pieces):
        self._pieces = list(pieces)
        self.sent = 0

    async def receive(self):
        if self._pieces[0] is None:
            return {"type": "http.disconnect"}
        seconds, data = self._pieces.pop(0)
        await trio.sleep(seconds)
        self.sent += len(data)
        return {"type": "http.request", "body": data, "more_body": bool(self._pieces)}


async def taken(client, pause=0):
    part = await Form(client.receive, b"x").part()
    data = b""
    async for piece in part.data:
        await trio.sleep(pause)
        data += piece
    return data


async def test_a_slow_client_has_all_the_time_that_its_bytes_earn(autojump_clock):
    piece = b"y" * uploads.SLOWEST_BYTES * 50
    pieces = [(50, piece)] * 100
    assert await taken(Client((0, HEAD), *pieces, (0, TAIL))) == piece * 100


async def test_a_trickle_does_not_hold_its_place_for_ever(autojump_clock):
    client = Client((0, HEAD), *[(10, b"y")] * 1000, (0, TAIL))
    began = trio.current_time()
    with pytest.raises(UploadStalled, match="1024 bytes a second"):
        await taken(client)
    assert trio.current_time() - began < 2 * uploads.STALL_SECONDS


async def test_a_client_that_says_nothing_more_is_given_up(autojump_clock):
    began = trio.current_time()
    with pytest.raises(UploadStalled):
        await taken(Client((0, HEAD), (1e6, TAIL)))
    assert trio.current_time() - began == pytest.approx(uploads.STALL_SECONDS)


async def test_a_fast_beginning_earns_no_long_silence(autojump_clock):
    client = Client((0, HEAD), (0, b"y" * 1_000_000), (uploads.STALL_SECONDS + 1, TAIL))
    with pytest.raises(UploadStalled):
        await taken(client)


async def test_time_that_the_disk_takes_is_not_the_client_s(autojump_clock):
    client = Client((0, HEAD), *[(1, b"y" * 2000)] * 20, (0, TAIL))
    assert len(await taken(client, pause=100)) == 40_000


async def test_a_client_that_leaves_is_told_apart(autojump_clock):
    with pytest.raises(ClientLeft):
        await taken(Client((0, HEAD + b"y"), None))


async def test_a_refused_client_is_listened_to_for_a_bounded_time(autojump_clock):
    began = trio.current_time()
    await Form(Client(*[(1, b"y")] * 1000).receive, b"x").discard()
    assert trio.current_time() - began == uploads.DISCARD_SECONDS


async def test_a_refused_client_is_listened_to_for_a_bounded_length(autojump_clock):
    piece = bytes(1024 * 1024)
    client = Client(*[(0, piece)] * 1000)
    await Form(client.receive, b"x").discard()
    assert client.sent == uploads.DISCARD_BYTES


async def test_nothing_is_waited_for_once_all_has_come(autojump_clock):
    form = Form(Client((0, b"no form at all")).receive, b"x")
    with pytest.raises(Unprocessable):
        await form.part()
    began = trio.current_time()
    await form.discard()
    assert trio.current_time() == began
