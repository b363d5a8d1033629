"""Bytes to lines: bounded, sans-IO, and the same lines at any split of the bytes.

A line ends at LF and nowhere else, so U+2028 and its kin stay what they are: text.
"""

from collections.abc import Iterator

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

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that ``data`` completes, without their ends and without blank ones.

        Lines in front of a passed ceiling still come; the offending one never does.  Take all of
        them: each is cut when it is asked for, so a large read is never copied as a whole.
        """
        room = max(self._bounds.stream_bytes - self.bytes, 0)
        self.bytes += len(data)
        start, stop = 0, min(len(data), room)
        while self.fault is None and (end := data.find(b"\n", start, stop)) >= 0:
            line = data[start:end]
            start = end + 1
            if self._rest:
                self._rest += line
                line = bytes(self._rest)
                self._rest = bytearray()
            if line := self._usable(line):
                yield line
        if self.fault is None:
            self._rest += data[start:stop]
            self._check_rest()
        if self.fault is None and stop < len(data):
            self._stop(Code.OUTPUT_LIMIT, f"more than {self._bounds.stream_bytes} bytes of output")

    def end(self) -> bytes:
        """What followed the last LF; nothing is held afterwards."""
        rest = bytes(self._rest)
        self._rest.clear()
        return self._usable(rest) if rest else b""

    def _usable(self, line: bytes) -> bytes:
        if len(line) > self._bounds.line_bytes:
            self._stop_at_long_line()
            return b""
        if self.lines == self._bounds.stream_lines:
            self._stop(Code.OUTPUT_LIMIT, f"more than {self.lines} lines of output")
            return b""
        self.lines += 1
        if self.lines == 1 and line.startswith(_BOM):
            line = line[len(_BOM) :]
        if line.endswith(b"\r"):
            line = line[:-1]
        return b"" if line.isspace() else line

    def _check_rest(self) -> None:
        if len(self._rest) > self._bounds.line_bytes:
            self._stop_at_long_line()

    def _stop_at_long_line(self) -> None:
        limit = self._bounds.line_bytes
        self._stop(Code.LINE_TOO_LONG, f"line {self.lines + 1} is longer than {limit} bytes")

    def _stop(self, code: Code, message: str) -> None:
        self.fault = Fault(code, message)
        self._rest = bytearray()
