"""Downloads over connections that break, and servers that answer something else."""

import functools

import pytest
import trio

from agentsdock.client.errors import ApiError
from agentsdock.client.http import Client

DATA = bytes(range(256)) * 400


class BreakingServer:
    """Sends a file's rest in answers of at most ``step`` bytes, then hangs up."""

    def __init__(self, step, ranges=True):
        self.step = step
        self.ranges = ranges
        self.asked = []

    async def serve(self, stream):
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        found = [line for line in head.decode().split("\r\n") if line.lower().startswith("range:")]
        at = int(found[0].partition("bytes=")[2].rstrip("-")) if found and self.ranges else 0
        self.asked.append(at)
        status = "200 OK"
        extra = ""
        if at:
            status = "206 Partial Content"
            extra = f"Content-Range: bytes {at}-{len(DATA) - 1}/{len(DATA)}\r\n"
        told = f"HTTP/1.1 {status}\r\n{extra}Content-Length: {len(DATA) - at}\r\n\r\n"
        await stream.send_all(told.encode() + DATA[at : at + self.step])
        await stream.aclose()


@pytest.fixture
async def fetch(nursery, tmp_path):
    async def run(server, **options):
        listeners = await nursery.start(
            functools.partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1")
        )
        port = listeners[0].socket.getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}") as client:
            await client.download("sess_1", "file_1", tmp_path / "a.bin", **options)
        return tmp_path / "a.bin"

    return run


async def test_a_connection_that_breaks_is_taken_up_where_it_broke(fetch, autojump_clock):
    server = BreakingServer(40_000)
    counted = []
    path = await fetch(server, progress=counted.append)
    assert path.read_bytes() == DATA
    assert server.asked == [0, 40_000, 80_000]
    assert sum(counted) == len(DATA)


async def test_a_server_without_ranges_begins_again(fetch, tmp_path, autojump_clock):
    part = tmp_path / ".file_1.part"
    part.write_bytes(b"old" * 10)
    counted = []
    path = await fetch(BreakingServer(len(DATA), ranges=False), progress=counted.append)
    assert path.read_bytes() == DATA
    assert sum(counted) == len(DATA)


async def test_it_gives_up_where_nothing_comes_and_keeps_what_came(fetch, tmp_path, autojump_clock):
    class Dying(BreakingServer):
        async def serve(self, stream):
            if self.asked:
                self.step = 0
            await super().serve(stream)

    server = Dying(1000)
    with pytest.raises(ApiError, match="no answer"):
        await fetch(server)
    assert len(server.asked) == 5
    assert (tmp_path / ".file_1.part").read_bytes() == DATA[:1000]
    assert not (tmp_path / "a.bin").exists()


async def test_a_target_that_appears_meanwhile_is_left_alone(fetch, tmp_path, autojump_clock):
    def appear(count):
        (tmp_path / "a.bin").write_bytes(b"precious")

    with pytest.raises(FileExistsError):
        await fetch(BreakingServer(len(DATA)), progress=appear)
    assert (tmp_path / "a.bin").read_bytes() == b"precious"


async def test_a_part_that_is_a_link_is_not_followed(fetch, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / ".file_1.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        await fetch(BreakingServer(len(DATA)))
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"
