"""What a CLI may do to a server: it ends in its own code, costs little, and the next turn works."""

import functools
import json
import pathlib

import pytest
import trio
from chaos.cli_program import install_cli

from agentsdock.testing.server import running_server

MOST_GROWTH = 64 << 20
SETTINGS = {
    "AGENTSDOCK_BACKEND": "cursor",
    "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    "AGENTSDOCK_CURSOR_STARTUP_TIMEOUT_SECONDS": "5",
    "AGENTSDOCK_IDLE_KILL_SECONDS": "6",
    "AGENTSDOCK_CURSOR_POST_TERMINAL_EXIT_SECONDS": "0.5",
    "AGENTSDOCK_CURSOR_MAX_TOOL_CALLS": "32",
    "AGENTSDOCK_CURSOR_MAX_STREAM_EVENTS": "5000",
}


@pytest.fixture(scope="module")
def live_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    program = install_cli(folder, pathlib.Path(__file__).with_name("bad_cli.py"))
    environment = {**SETTINGS, "CURSOR_BIN": str(program), "AGENTSDOCK_AGENT_CWD": str(folder)}
    with running_server(folder / "state", environment, token="bad-streams") as server:
        yield server
        assert "Traceback" not in server.log.read_text()


class Memory:
    """The server's resident memory, and its peak since this was made."""

    def __init__(self, pid):
        self._process = pathlib.Path(f"/proc/{pid}")
        (self._process / "clear_refs").write_text("5")
        self.before = self._read("VmRSS")

    @property
    def growth(self):
        return self._read("VmHWM") - self.before

    def _read(self, name):
        for line in (self._process / "status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise LookupError(name)


async def play(house, chat, prompt):
    """A turn from its start to its end: its events, and its ending."""
    run = await house.turn(chat, prompt)
    events = []
    async with house.follow(chat) as socket:
        while not (events and events[-1]["type"] == "turn_finished"):
            event = json.loads(await socket.get_message())
            if event.get("run_id") == run:
                events.append(event)
    return events, events[-1]


async def check(house, prompt, **expected):
    memory = Memory(house.server.process.pid)
    chat = await house.chat()
    events, ending = await play(house, chat, prompt)
    assert {name: ending[name] for name in expected} == expected
    assert ending["tree_empty"] is True
    assert (ending["code"] is None) == (not ending["is_error"])
    assert [event["code"] for event in events if event["type"] == "error"] == (
        [ending["code"]] if ending["is_error"] else []
    )
    assert memory.growth < MOST_GROWTH
    _, after = await play(house, chat, "[[fake]]")
    assert after["code"] is None
    return events, ending


@pytest.mark.parametrize(
    "orders, code",
    [
        ("bad=garbage", "bad_line"),
        ("garbage=10000000", "bad_line"),
        ("nonjson=3", "bad_line"),
        ("badutf8=1", "bad_line"),
        ("bad=nested-line", "bad_line"),
        ("bad=nested-message", "unknown_schema"),
        ("bad=nested-call", "unknown_schema"),
        ("bad=nested-addition", "unknown_schema"),
        ("bad=long-line", "line_too_long"),
        ("bad=long-line-without-end", "line_too_long"),
        ("bad=endless-texts", "output_limit"),
        ("tools=33", "tool_limit"),
        ("noinit=1", "missing_init"),
        ("noresult=1", "missing_result"),
        ("error=1", "logical_error"),
        ("error=1 exit=1", "logical_error"),
    ],
)
async def test_each_fault_ends_in_its_own_code(orders, code, house):
    await check(house, f"[[fake {orders}]]", code=code, result_text="")


@pytest.mark.parametrize(
    "orders, exit_code, signal",
    [
        ("exit=3", 3, None),
        ("noresult=1 exit=3", 3, None),
        ("bad=killed", -9, "SIGKILL"),
    ],
)
async def test_an_exit_is_told_as_it_was(orders, exit_code, signal, house):
    expected = {"code": "nonzero_exit", "exit_code": exit_code, "result_text": ""}
    _, ending = await check(house, f"[[fake {orders}]]", **expected)
    assert ending.get("signal") == signal


@pytest.mark.parametrize(
    "orders", ["bad=huge-tool", "bad=many-large-lines", "stderr=200000000", "nonl=1"]
)
async def test_much_is_not_bad(orders, house):
    await check(house, f"[[fake {orders}]]", code=None, exit_code=0)


async def test_of_much_on_stderr_the_end_is_kept(house):
    events, _ = await check(house, "[[fake stderr=200000000 exit=1]]", code="nonzero_exit")
    (error,) = [event for event in events if event["type"] == "error"]
    assert error["stderr_bytes"] == 200_000_000
    assert 0 < len(error["stderr_tail"]) <= 4000


@pytest.mark.parametrize("orders", ["linger=-1", "linger=-1 ignoreterm=1 child=setsidterm"])
async def test_silence_after_a_result_is_a_success_all_the_same(orders, house):
    ending = {"code": None, "exit_overrun": True, "exit_code": None}
    await check(house, f"[[fake {orders}]]", **ending)


async def test_each_silence_ends_by_its_own_limit(house):
    silences = {
        "bad=silent-start": "startup_timeout",
        "bad=closed-stdout": "startup_timeout",
        "bad=closed-stdout-after-init": "idle_timeout",
        "hang=1": "idle_timeout",
        "bad=closed-and-gone": "missing_init",
    }
    async with trio.open_nursery() as nursery:
        for orders, code in silences.items():
            nursery.start_soon(functools.partial(check, house, f"[[fake {orders}]]", code=code))
