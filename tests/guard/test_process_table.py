"""What is read from the process table, and the way without the kernel's children files."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentsdock.guard import orphans, process_guard
from agentsdock.guard.process_guard import children_of
from agentsdock.guard.procs import last_pid, look, marker_of, own_line


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Named so that a careless reader of its stat line is led astray."""
    program = """
open("/proc/self/comm", "w").write("a) R 1 (b")
print(flush=True)
input()
"""
    argv = [sys.executable, "-I", "-S", "-c", program]
    env = {"X": "AGENTSDOCK_RUN_MARKER=no", "AGENTSDOCK_RUN_MARKER": "yes:1", "Z": ""}
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_described_whatever_its_name(child: subprocess.Popen[bytes]) -> None:
    process = look(child.pid)
    assert process is not None
    assert (process.pid, process.parent, process.session) == (child.pid, os.getpid(), child.pid)
    assert not process.dead
    mine = look(os.getpid())
    assert mine is not None
    assert mine.start_ticks < process.start_ticks


def test_a_zombie_is_dead_and_a_collected_process_is_nothing(
    child: subprocess.Popen[bytes],
) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = look(child.pid)
    assert zombie is not None
    assert zombie.dead
    assert child.pid in children_of(os.getpid())
    child.wait()
    assert look(child.pid) is None


def test_only_the_variable_itself_is_a_marker(child: subprocess.Popen[bytes]) -> None:
    assert marker_of(child.pid) == "yes:1"
    assert marker_of(os.getpid()) == ""
    assert marker_of(2**22 + 1) == ""


def test_the_newest_process_has_the_last_number(child: subprocess.Popen[bytes]) -> None:
    assert last_pid() > 0
    with subprocess.Popen(["/bin/true"]) as newest:
        newest.wait()
        assert 0 <= last_pid() - newest.pid < 1000 or last_pid() < newest.pid


def test_the_own_line_is_this_process_and_its_ancestors(child: subprocess.Popen[bytes]) -> None:
    line = own_line()
    assert {os.getpid(), os.getppid()} <= line
    assert child.pid not in line


def test_children_are_found_without_the_kernels_children_files(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_bytes = process_guard.read_bytes

    def without_children_files(path: str) -> bytes:
        if path.endswith("/children"):
            raise FileNotFoundError(path)
        return read_bytes(path)

    expected = children_of(os.getpid())
    monkeypatch.setattr(process_guard, "read_bytes", without_children_files)
    assert sorted(children_of(os.getpid())) == sorted(expected)
    assert child.pid in expected
    assert children_of(2**22 + 1) == []


def test_an_orphan_that_one_listing_missed_is_ended_all_the_same(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    listings: list[list[int]] = [[], []]

    def listing(pid: int) -> list[int]:
        return listings.pop() if listings else children_of(pid)

    monkeypatch.setattr(orphans, "children_of", listing)
    assert orphans.end(lambda process: process.pid == child.pid, 5.0) == ([child.pid], ())
    assert look(child.pid) is None
    child.returncode = -9
