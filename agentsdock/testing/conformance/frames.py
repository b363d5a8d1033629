"""Where the frames of a server's WebSocket bytes begin and end."""

from collections.abc import Iterator

TEXT, BINARY, CLOSE = 1, 2, 8


class FrameSplitter:
    """Bytes in, whole frames out as (opcode, bytes, payload).  Frames of servers have no mask."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def rest(self) -> bytes:
        """The beginning of a frame that is not whole yet."""
        return bytes(self._held)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        self._held += data
        while (sizes := self._sizes()) is not None:
            head, size = sizes
            if len(self._held) < head + size:
                return
            frame = bytes(self._held[: head + size])
            del self._held[: head + size]
            yield frame[0] & 0x0F, frame, frame[head:]

    def _sizes(self) -> tuple[int, int] | None:
        """Bytes of the header and of the payload, once the header is there."""
        held = self._held
        if len(held) < 2:
            return None
        head = {126: 4, 127: 10}.get(held[1] & 0x7F, 2)
        if len(held) < head:
            return None
        size = held[1] & 0x7F if head == 2 else int.from_bytes(held[2:head], "big")
        return head, size
