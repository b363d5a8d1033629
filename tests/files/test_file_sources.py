"""Files that are opened for an agent: plain ones, and nothing else is even opened."""

import os

import pytest

from agentsdock.files import sources
from agentsdock.files.sources import NotPublishable, open_source


@pytest.fixture
def opened(monkeypatch):
    """The names that were opened."""
    names = []
    real = os.open

    def noting(path, flags, *args, **kwargs):
        names.append(os.path.basename(path))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(sources.os, "open", noting)
    return names


def publishable(path, tmp_path):
    source = open_source(str(path), str(tmp_path / "work"), tmp_path / "state")
    source.close()
    return source


@pytest.fixture
def work(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_plain_file_is_opened(work, tmp_path):
    (work / "a.txt").write_text("hello")
    assert publishable(work / "a.txt", tmp_path).size == 5


def test_devices_and_pipes_are_looked_at_only(work, tmp_path, opened):
    os.mkfifo(work / "fifo")
    for path in (work / "fifo", "/dev/null", "/dev/tty"):
        with pytest.raises(NotPublishable):
            publishable(path, tmp_path)
        assert os.path.basename(path) not in opened


def test_a_file_that_becomes_a_pipe_in_between_is_refused(work, tmp_path, monkeypatch):
    path = work / "a.txt"
    path.write_text("x")
    real = os.stat

    def swapping(name, **how):
        found = real(name, **how)
        if name == "a.txt":
            path.unlink()
            os.mkfifo(path)
        return found

    monkeypatch.setattr(sources.os, "stat", swapping)
    with pytest.raises(NotPublishable, match="plain file"):
        publishable(path, tmp_path)


def test_a_file_that_becomes_a_link_in_between_is_refused(work, tmp_path, monkeypatch):
    path = work / "a.txt"
    path.write_text("x")
    real = os.stat

    def swapping(name, **how):
        found = real(name, **how)
        if name == "a.txt":
            path.unlink()
            path.symlink_to("/etc/hostname")
        return found

    monkeypatch.setattr(sources.os, "stat", swapping)
    with pytest.raises(NotPublishable, match="cannot be opened"):
        publishable(path, tmp_path)
