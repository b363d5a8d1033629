"""Logs: nothing lost before they are set up, one JSON object a line, and no harm to who logs."""

import io
import json

import pytest

from agentsdock import logs


@pytest.fixture(autouse=True)
def not_set_up(monkeypatch):
    monkeypatch.setattr(logs, "_backend", None)
    logs._waiting.clear()
    yield
    logs._waiting.clear()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_what_is_said_before_the_set_up_is_kept_and_written_in_order():
    stream = io.StringIO()
    log = logs.get_logger(chat="sess_1")
    log.info("first")
    log.bind(run="run_1").warning("second", code="stopped")
    logs.configure(stream)
    log.error("third")
    told = lines(stream)
    assert [(line["event"], line["level"]) for line in told] == [
        ("first", "info"),
        ("second", "warning"),
        ("third", "error"),
    ]
    assert all(line["chat"] == "sess_1" and line["timestamp"] for line in told)
    assert (told[1]["run"], told[1]["code"]) == ("run_1", "stopped")
    assert "run" not in told[2]


def test_what_waits_for_the_set_up_is_bounded():
    for number in range(1000):
        logs.get_logger().info("line", number=number)
    stream = io.StringIO()
    logs.configure(stream)
    assert [line["number"] for line in lines(stream)] == list(range(800, 1000))


def test_a_terminal_gets_text_for_people():
    stream = Terminal()
    logs.configure(stream)
    logs.get_logger(run="run_1").info("turn started")
    assert "turn started" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_debug_lines_are_left_out():
    stream = io.StringIO()
    logs.configure(stream)
    logs.get_logger().debug("detail")
    assert stream.getvalue() == ""


def test_a_reader_that_has_gone_harms_nobody():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    logs.configure(Gone())
    logs.get_logger().info("nobody hears it")
    closed = io.StringIO()
    logs.configure(closed)
    closed.close()
    logs.get_logger().info("nor this")


def test_an_error_is_placed_without_being_quoted():
    def deep(depth):
        if depth:
            deep(depth - 1)
        raise ValueError("the user's own words")

    try:
        raise ExceptionGroup("outer", [_caught(deep, 6)])
    except ExceptionGroup as group:
        told = logs.where(group)
    assert told.startswith("ValueError in deep:")
    assert told.count("deep:") == 4
    assert "words" not in told


def _caught(function, *args):
    try:
        function(*args)
    except ValueError as error:
        return error
    raise AssertionError
