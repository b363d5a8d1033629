"""Bytes to lines: bounded, sans-IO, and the same lines at any split of the bytes.

A line ends at LF and nowhere else, so U+2028 and its kin stay what they are: text.
"""

from agentsdock.model.codes import Code
from agentsdock.streams.neutral import Bounds, Fault

_BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """Cuts a stream into lines and holds at most one unfinished line of ``line_bytes``.

    The first ceiling that is passed sets :attr:`fault`; from then on bytes are only counted.
    ``lines`` counts blank lines too, ``bytes`` counts everything that was fed.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.lines = 0
        self.bytes = 0
        self.fault: Fault | None = None
        self._bounds = bounds
        self._rest = bytearray()

    @property
    def held(self) -> int:
        """Bytes of the unfinished line that are held in memory."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without their ends and without blank ones.

        Lines in front of a passed ceiling are still returned; the offending one never is.
        """
        room = max(self._bounds.stream_bytes - self.bytes, 0)
        self.bytes += len(data)
        if self.fault is not None:
            return []
        if len(data) <= room:
            return self._split(data)
        lines = self._split(data[:room])
        self._stop(Code.OUTPUT_LIMIT, f"more than {self._bounds.stream_bytes} bytes of output")
        return lines

    def end(self) -> bytes:
        """What followed the last LF; nothing is held afterwards."""
        rest = bytes(self._rest)
        self._rest.clear()
        if not rest:
            return b""
        kept = self._keep([rest])
        return kept[0] if kept else b""

    def _split(self, data: bytes) -> list[bytes]:
        pieces = data.split(b"\n")
        if self._rest:
            self._rest += pieces[0]
            if len(pieces) > 1:
                pieces[0] = bytes(self._rest)
                self._rest = bytearray(pieces.pop())
            else:
                pieces = []
        else:
            self._rest += pieces.pop()
        lines = self._keep(pieces)
        if self.fault is None and len(self._rest) > self._bounds.line_bytes:
            self._too_long()
        return lines

    def _keep(self, pieces: list[bytes]) -> list[bytes]:
        kept: list[bytes] = []
        for line in pieces:
            if len(line) > self._bounds.line_bytes:
                self._too_long()
                break
            if self.lines == self._bounds.stream_lines:
                self._stop(
                    Code.OUTPUT_LIMIT, f"more than {self._bounds.stream_lines} lines of output"
                )
                break
            self.lines += 1
            if self.lines == 1 and line.startswith(_BOM):
                line = line[len(_BOM) :]
            if line.endswith(b"\r"):
                line = line[:-1]
            if line and not line.isspace():
                kept.append(line)
        return kept

    def _too_long(self) -> None:
        self._stop(
            Code.LINE_TOO_LONG,
            f"line {self.lines + 1} is longer than {self._bounds.line_bytes} bytes",
        )

    def _stop(self, code: Code, message: str) -> None:
        if self.fault is None:
            self.fault = Fault(code, message)
        self._rest = bytearray()
