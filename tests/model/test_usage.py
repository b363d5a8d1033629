from hypothesis import given
from hypothesis import strategies as st

from agentsdock.model.usage import Usage, added, since, usage_fields

counts = st.none() | st.integers(0, 10**6)
usages = st.builds(Usage, counts, counts, counts, counts)


def test_what_two_turns_used_adds_up_and_what_nobody_tells_stays_unknown():
    assert added(Usage(1, 2, cost_usd=0.5), Usage(10, None, 3)) == Usage(11, 2, 3, None, 0.5)
    assert added(None, Usage(1)) == added(Usage(1), None) == Usage(1)
    assert added(None, None) is None


@given(usages, usages)
def test_of_a_total_the_last_turn_s_part_is_what_came_on_top(before, usage):
    rest = since(before, added(before, usage))
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
        assert (getattr(rest, name) or 0) == (getattr(usage, name) or 0)


def test_a_total_that_fell_has_begun_anew():
    assert since(Usage(100, 5), Usage(7, 9)) == Usage(7, 4)
    assert since(None, Usage(7)) == Usage(7)


def test_the_wire_has_its_own_names_and_a_total():
    fields = usage_fields(Usage(5, 2, 10, 3, 0.25))
    assert fields == {
        "input_tokens": 5,
        "output_tokens": 2,
        "cached_input_tokens": 10,
        "cache_write_input_tokens": 3,
        "total_tokens": 20,
        "cost_usd": 0.25,
    }
    assert usage_fields(None) == {}
