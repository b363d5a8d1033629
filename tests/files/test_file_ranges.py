"""Whatever a client asks for, what it gets lies within the file."""

from hypothesis import example, given
from hypothesis import strategies as st

from agentsdock.files.ranges import NotSatisfiable, wanted_span

NUMBERS = st.one_of(st.just(""), st.integers(0, 2**63).map(str), st.integers(0, 12).map(str))


@given(first=NUMBERS, last=NUMBERS, size=st.integers(0, 12))
@example("", "0", 0)
@example("0", "", 0)
def test_a_range_gives_a_part_of_the_file_or_all_or_a_refusal(first, last, size):
    data = bytes(range(size))
    try:
        span = wanted_span(f"bytes={first}-{last}", size)
    except NotSatisfiable:
        assert not (data[int(first) :] if first else data[size - min(size, int(last)) :])
        return
    if span is None:
        assert (first, last) == ("", "") or (first and last and int(last) < int(first))
        return
    assert 0 <= span.first < span.end <= size
    begin, end = (int(first), int(last) + 1 if last else None) if first else (-int(last), None)
    assert data[span.first : span.end] == data[begin:end]


@given(st.text(max_size=30))
def test_a_range_that_is_none_is_the_whole(header):
    if not header.strip().startswith("bytes="):
        assert wanted_span(header, 10) is None
