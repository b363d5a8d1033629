"""Names of files: readable in every script, and harmless in folders and headers."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsdock.files.names import MAX_NAME_BYTES, clean_name, disposition


@pytest.mark.parametrize(
    "name",
    [
        "हिन्दी में.txt",
        "กำหนดการ.pdf",
        "தமிழ்.md",
        "قُرْآن.txt",
        "שָׁלוֹם.txt",
        "x\u0302.txt",
        "résumé 語.pdf",
    ],
)
def test_letters_keep_the_marks_that_belong_to_them(name):
    assert clean_name(name) == unicodedata.normalize("NFC", name)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\ufe0f.txt", "a_.txt"),
        ("a\u034f\u180b\U000e0100.txt", "a___.txt"),
        ("a\u200b\u200f\u202e.txt", "a___.txt"),
        ("a\r\nSet-Cookie: x=1.txt", "a__Set-Cookie_ x_1.txt"),
        ("a\0b", "a_b"),
        ("\ud83d.txt", "_.txt"),
        ("x" * 255, "x" * 200),
        ("x" * 251 + ".txt", "x" * 196 + ".txt"),
        ("x" * 252 + ".txt", "x" * 196 + ".txt"),
        ("語" * 85 + ".txt", "語" * 65 + ".txt"),
        ("a." + "x" * 25, "a." + "x" * 25),
    ],
)
def test_what_shows_nothing_or_does_something_is_replaced(given, shown):
    assert clean_name(given) == shown


@given(st.text(max_size=400))
@example("\u0301" * 300)
@example("a." + "é" * 30)
@example("/..\\.")
def test_any_name_fits_into_a_folder_and_into_a_header(given):
    name = clean_name(given)
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert name not in (".", "..")
    assert not set(name) & set('/\\\0\r\n"')
    assert clean_name(name) == name
    header = disposition(name, "text/plain")
    assert header.isascii()
    assert header.isprintable()


def test_the_header_gives_the_name_in_full_and_in_plain_letters():
    header = disposition("résumé 語.pdf", "application/pdf")
    assert header == (
        "inline; filename=\"r_sum_ _.pdf\"; filename*=UTF-8''r%C3%A9sum%C3%A9%20%E8%AA%9E.pdf"
    )
