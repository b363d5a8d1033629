import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdock.model.codes import Code
from agentsdock.streams.lines import LineSplitter
from agentsdock.streams.neutral import Bounds


def split(pieces: list[bytes], **bounds: int) -> tuple[list[bytes], bytes, LineSplitter]:
    splitter = LineSplitter(Bounds(**bounds))
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return lines, splitter.end(), splitter


def lines_of(data: bytes, **bounds: int) -> list[bytes]:
    lines, rest, _ = split([data], **bounds)
    return [*lines, rest] if rest else lines


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def test_a_line_ends_at_lf_only() -> None:
    text = "a\u2028b\u0085c\x0bd\x0ce\rf"
    assert lines_of(text.encode() + b"\ng\n") == [text.encode(), b"g"]


def test_one_cr_before_the_end_is_dropped_and_no_more() -> None:
    assert lines_of(b"a\r\nb\r\r\n\r\nc") == [b"a", b"b\r", b"c"]


def test_blank_lines_are_nothing_but_are_counted() -> None:
    lines, _, splitter = split([b"\n \t\n\r\na\n"])
    assert lines == [b"a"]
    assert splitter.lines == 4


def test_a_byte_order_mark_is_dropped_from_the_first_line_only() -> None:
    assert lines_of(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n") == [b"a", b"\xef\xbb\xbfb"]
    assert lines_of(b"\xef\xbb\xbf\na\n") == [b"a"]


def test_what_follows_the_last_lf_is_given_at_the_end_once() -> None:
    splitter = LineSplitter(Bounds())
    assert list(splitter.feed(b"a\nbc")) == [b"a"]
    assert splitter.end() == b"bc"
    assert splitter.end() == b""
    assert splitter.lines == 2


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("pieces", ["whole", "bytes"])
def test_a_line_over_the_bound_is_told_once_with_or_without_an_end(
    ended: bool, pieces: str
) -> None:
    data = b"ok\n" + b"x" * 11 + (b"\nok\n" if ended else b"")
    lines, rest, splitter = split([data] if pieces == "whole" else one_by_one(data), line_bytes=10)
    assert lines == [b"ok"]
    assert rest == b""
    assert splitter.fault is not None
    assert splitter.fault.code is Code.LINE_TOO_LONG
    assert "line 2 is longer than 10 bytes" in splitter.fault.message
    assert splitter.bytes == len(data)


def test_a_line_of_exactly_the_bound_is_fine() -> None:
    assert lines_of(b"x" * 10 + b"\n" + b"y" * 10, line_bytes=10) == [b"x" * 10, b"y" * 10]


def test_an_unfinished_line_never_holds_more_than_the_bound() -> None:
    splitter = LineSplitter(Bounds(line_bytes=1000))
    most = 0
    for _ in range(5000):
        list(splitter.feed(b"abc"))
        most = max(most, splitter.held)
    assert most == 999
    assert splitter.held == 0


def test_the_line_ceiling_lets_the_lines_before_it_through() -> None:
    lines, _, splitter = split([b"1\n\n3\n4\n5\n"], stream_lines=3)
    assert lines == [b"1", b"3"]
    assert splitter.fault is not None
    assert splitter.fault.code is Code.OUTPUT_LIMIT
    assert "3 lines" in splitter.fault.message


def test_a_last_line_without_an_end_counts_for_the_line_ceiling() -> None:
    _, rest, splitter = split([b"1\n2"], stream_lines=1)
    assert rest == b""
    assert splitter.fault is not None
    assert splitter.fault.code is Code.OUTPUT_LIMIT


@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_the_byte_ceiling_lets_the_lines_before_it_through(pieces: int) -> None:
    data = b"12\n45\n78\n"
    cut = [data[at : at + pieces] for at in range(0, len(data), pieces)]
    lines, rest, splitter = split(cut, stream_bytes=7)
    assert lines == [b"12", b"45"]
    assert rest == b""
    assert splitter.fault is not None
    assert splitter.fault.code is Code.OUTPUT_LIMIT
    assert splitter.bytes == 9


@pytest.mark.parametrize("size", [1, 100])
def test_the_first_ceiling_that_is_passed_stays_the_fault(size: int) -> None:
    data = b"x" * 30
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    _, _, splitter = split(pieces, line_bytes=5, stream_bytes=20)
    assert splitter.fault is not None
    assert splitter.fault.code is Code.LINE_TOO_LONG


def test_exactly_the_byte_ceiling_is_fine() -> None:
    assert lines_of(b"12\n45\n", stream_bytes=6) == [b"12", b"45"]


def test_a_long_line_in_small_pieces_costs_its_length_and_not_its_square() -> None:
    # Were the held part scanned or copied at each piece, these 60,000 reads would move 900 GB.
    splitter = LineSplitter(Bounds())
    for _ in range(60_000):
        assert list(splitter.feed(b"x" * 500)) == []
    assert list(map(len, splitter.feed(b"\n"))) == [30_000_000]


@given(
    data=st.lists(st.sampled_from([b"\n", b"\r", b"a", b" ", b"bcdefgh", b"\xef\xbb\xbf"])).map(
        b"".join
    ),
    seed=st.integers(),
    line_bytes=st.integers(1, 12),
    stream_lines=st.integers(1, 6),
    stream_bytes=st.integers(1, 60),
)
def test_any_split_gives_the_same_lines_and_the_same_fault(
    data: bytes, seed: int, line_bytes: int, stream_lines: int, stream_bytes: int
) -> None:
    choose = random.Random(seed)
    pieces, rest = [], data
    while rest:
        size = choose.randint(1, 9)
        pieces.append(rest[:size])
        rest = rest[size:]
    bounds = {
        "line_bytes": line_bytes,
        "stream_lines": stream_lines,
        "stream_bytes": stream_bytes,
    }
    whole, cut = split([data], **bounds), split(pieces, **bounds)
    assert cut[:2] == whole[:2]
    assert cut[2].fault == whole[2].fault
    assert (cut[2].lines, cut[2].bytes) == (whole[2].lines, whole[2].bytes)
