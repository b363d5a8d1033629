"""SIGKILL of the server before and after every commit of a scenario (``crash_matrix``)."""

import pathlib

import pytest
from crash_matrix import PAGE, matrix

pytestmark = pytest.mark.chaos


async def test_the_page_tells_what_a_crash_at_every_commit_leaves(tmp_path: pathlib.Path) -> None:
    assert await matrix(tmp_path) == PAGE.read_text()
