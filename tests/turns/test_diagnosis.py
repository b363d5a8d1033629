"""What is read out of a CLI's last words, and what is kept out of the timeline."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdock.turns.diagnosis import TAIL_CHARS, Kind, clean, diagnose, scrub, shown_tail

PROMPT = "You work in an orchard.\nFind out why the planner prunes the old pear trees in May.\n"


@pytest.mark.parametrize(
    "text, kind",
    [
        ("Error: Authentication required. Sign in with 'agent login'.", Kind.SIGN_IN),
        ("Invalid API key · Please run /login", Kind.SIGN_IN),
        ("⚠ Workspace Trust Required\n\n  • Add --trust when you trust it", Kind.TRUST),
        ("Not inside a trusted directory and --skip-git-repo-check was not given.", Kind.TRUST),
        ("Cannot use this model: gpt-9. Available models: auto", Kind.MODEL),
        ("ActionRequiredError: You have hit your usage limit.", Kind.USAGE_LIMIT),
        ("No conversation found with session ID: 1", Kind.SESSION_LOST),
        ("Error: thread/resume failed: no rollout found for thread id 1", Kind.SESSION_LOST),
        ("Retry attempt 2...\nRetriableError: [resource_exhausted] Error", Kind.RETRIABLE),
        ("Error: ENOENT: no such file, rename '/h/cli-config.json.tmp' -> 'x'", Kind.RETRIABLE),
        ("ActionRequiredError: something else", None),
        ("Error: Model provider `nonsense` not found", None),
        ("Connection lost, reconnecting (attempt 1)...", None),
        ("", None),
    ],
)
def test_a_known_cause_is_recognised(text, kind):
    assert diagnose(text).kind == kind


def test_a_spent_quota_is_claimed_only_by_its_own_words():
    assert diagnose("RetriableError: [resource_exhausted] Error").kind is Kind.RETRIABLE
    assert diagnose("[resource_exhausted] usage limit reached").kind is Kind.USAGE_LIMIT


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "error: unknown option '--x'\n\nFor more information, try '--help'.\n",
            "error: unknown option '--x'",
        ),
        (
            "TypeError: x is undefined\n    at run (/a/b.js:1:2)\n\nNode.js v22.1.0\n",
            "TypeError: x is undefined",
        ),
        ("first\nsecond\n   \n---\n", "second"),
        ("Reading additional input from stdin...\n", ""),
    ],
)
def test_the_telling_line_is_found(text, line):
    assert diagnose(text).line == line


def test_only_the_last_lines_are_read():
    old = "Error: Authentication required.\n"
    assert diagnose(old + "progress line\n" * 200).kind is None


def test_control_sequences_are_dropped_and_a_bare_cr_ends_a_line():
    raw = "\x1b]0;title\x07\x1b[31mred\x1b[0m\rnext\r\n\x00\x9b\tend\ud800"
    assert clean(raw) == "red\nnext\n\tend?"


def test_an_unfinished_sequence_hides_no_later_line():
    assert "kept" in clean("\x1b]0;never ended\nkept")


def test_the_tail_is_the_end_and_bounded():
    shown = shown_tail("x" * 9000 + "the end", ())
    assert len(shown) == TAIL_CHARS
    assert shown.endswith("the end")


class TestScrub:
    def test_a_secret_is_replaced_wherever_it_stands(self):
        assert scrub("a=token-123;b=token-123", ["token-123"]) == "a=[redacted];b=[redacted]"

    def test_a_short_secret_is_replaced_as_a_word_only(self):
        assert scrub("go good go.", ["go"]) == "[redacted] good [redacted]."

    @pytest.mark.parametrize("blank", ["", "  ", "\n"])
    def test_a_blank_secret_replaces_nothing(self, blank):
        assert scrub("a b", [blank]) == "a b"

    def test_a_whole_prompt_is_replaced(self):
        assert scrub(f"prompt: {PROMPT}!", [PROMPT]) == "prompt: [redacted]\n!"

    def test_a_part_of_a_prompt_is_replaced(self):
        assert scrub("..." + PROMPT[30:70] + "...", [PROMPT]) == "...[redacted]..."

    def test_an_escaped_prompt_is_replaced(self):
        shown = scrub(json.dumps({"text": PROMPT}), [PROMPT])
        assert "planner" not in shown
        assert "orchard" not in shown

    @given(st.integers(0, 40), st.integers(0, 60), st.integers(32, 60))
    def test_no_long_piece_of_a_prompt_is_left(self, before, start, length):
        piece = PROMPT.strip()[start : start + length]
        text = "~" * before + piece + "~~~~"
        if len(piece) >= 32:
            assert piece not in scrub(text, [PROMPT])
        assert scrub(text, [PROMPT]).count("~") == before + 4

    @given(st.text(max_size=200))
    def test_text_that_shares_nothing_is_left_alone(self, text):
        assert scrub(text, ["\U0001f333" * 40]) == text or "\U0001f333" in text
