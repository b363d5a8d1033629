"""A snippet is one bounded line around the first word that was asked for."""

from hypothesis import given
from hypothesis import strategies as st

from agentsdock.chats.searching import SNIPPET_CHARS, snippet


def test_the_first_word_that_is_there_is_in_the_snippet():
    text = "before " * 100 + "the Needle\nis here " + "after " * 100
    shown = snippet(text, "absent needle")
    assert "the Needle is here" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")


def test_a_short_text_is_shown_as_it_is():
    assert snippet("just this", "this") == "just this"


@given(st.text(max_size=600), st.text(max_size=20))
def test_any_text_gives_a_bounded_line(text, query):
    shown = snippet(text, query)
    assert len(shown) <= SNIPPET_CHARS + 2
    assert "\n" not in shown
