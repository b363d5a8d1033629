"""A client at the level of bytes."""

import re
import socket

import msgspec
import trio
from attrs import frozen
from fake_dock import CHAT


@frozen
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return msgspec.json.decode(self.body)


def request(method="GET", target="/api/health", body=None, version="1.1", **headers):
    named = {"Host": "127.0.0.1"} | {
        name.replace("_", "-"): value for name, value in headers.items() if value is not None
    }
    if body is not None:
        named = {"Content-Type": "application/json", "Content-Length": str(len(body))} | named
    lines = [f"{method} {target} HTTP/{version}", *(f"{k}: {v}" for k, v in named.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


def upgrade(query="", chat=CHAT, **headers):
    return request(
        target=f"/api/sessions/{chat}/events{query}",
        Upgrade="websocket",
        Connection="Upgrade",
        Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
        Sec_WebSocket_Version="13",
        **headers,
    )


async def read_answer(stream):
    """One response, by its Content-Length; what follows it must not be there yet."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some()
        assert more, f"closed after {data!r}"
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(re.split(r":\s*", line.lower(), maxsplit=1) for line in lines)
    size = int(headers.get("content-length", 0))
    while len(body) < size:
        more = await stream.receive_some()
        assert more, f"closed after {len(body)} of {size} bytes"
        body += more
    return Answer(int(first.split()[1]), headers, body)


async def read_rest(stream):
    """What comes until the server closes."""
    data = b""
    try:
        while more := await stream.receive_some():
            data += more
    except trio.BrokenResourceError:
        pass
    return data


async def read_upgrade(stream):
    """The head of a 101; returns it and the bytes behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some()
        assert more, f"closed after {data!r}"
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    return head.lower(), rest


def masked(opcode, payload=b"", final=True):
    """A client's frame; a mask of zeros leaves the payload as it is."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65_536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes([(0x80 if final else 0) | opcode]) + length + bytes(4) + payload


def reset(stream):
    """Leave without a farewell."""
    linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    stream.socket.close()


def split_frames(data):
    """(opcode, payload) of whole server frames, and what is left."""
    frames = []
    while len(data) >= 2:
        size, at = data[1], 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(data[2:10], "big"), 10
        if len(data) < at + size:
            break
        frames.append((data[0] & 15, data[at : at + size]))
        data = data[at + size :]
    return frames, data
