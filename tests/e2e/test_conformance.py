"""Our server and our client pass the kit; ones that break a promise do not."""

import contextlib
import functools
import json
import re
import subprocess
import sys

import pytest
import trio
from click.testing import CliRunner

from agentsdock.cli.main import main
from agentsdock.client.http import Client
from agentsdock.testing.conformance import scenarios
from agentsdock.testing.conformance.checker import check_seen
from agentsdock.testing.conformance.frames import TEXT
from agentsdock.testing.conformance.proxy import FaultProxy, Faults, open_proxy
from agentsdock.testing.conformance.scenarios import Server, run_scenarios
from agentsdock.testing.conformance.socket import open_socket
from agentsdock.testing.server import running_server

TOKEN = "conformance-SECRET-1"
TURN = {"prompt": "[[fake events=12 tools=2]]"}
LONG = {"prompt": "[[fake hang=1]]"}
FLOOD = {"prompt": "[[fake events=100 size=20000]]"}


@pytest.fixture(scope="module")
def live_server(cursor_cli, tmp_path_factory):
    """One for all of these tests: each has chats of its own."""
    folder = tmp_path_factory.mktemp("conformance")
    environ = {"CURSOR_BIN": str(cursor_cli), "AGENTSDOCK_AGENT_CWD": str(folder)}
    environ |= {"AGENTSDOCK_BACKEND": "cursor", "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2"}
    with running_server(folder / "state", environ, token=TOKEN) as server:
        yield server


def asked(url, **more):
    return Server(url, TOKEN, "cursor", TURN, LONG, FLOOD, **more)


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_our_server_keeps_every_promise(environment, tmp_path, end):
    environment["AGENTSDOCK_WEBSOCKET_STALL_SECONDS"] = "1"
    with contextlib.ExitStack() as lives:
        start = functools.partial(running_server, tmp_path / "state", environment, token=TOKEN)
        server = lives.enter_context(start())
        servers = [server]
        port = int(server.url.rpartition(":")[2])

        async def restart():
            getattr(servers[-1].process, end)()
            await trio.to_thread.run_sync(servers[-1].process.wait)
            again = start(port=port)
            servers.append(await trio.to_thread.run_sync(again.__enter__))
            lives.push(again.__exit__)

        results = await run_scenarios(asked(server.url, restart=restart))
    assert [result.name for result in results if result.skipped] == []
    assert [(result.name, list(map(str, result.violations))) for result in results] == [
        (scenario.__name__.replace("_", " "), []) for scenario in scenarios.SCENARIOS
    ]


FAULTS = {
    "is cut after every event": Faults(cut_every=1),
    "is cut after every seven": Faults(cut_every=7),
    "is cut within an event": Faults(cut_every=3, inside=True),
    "is reset": Faults(cut_every=5, abort=True),
    "stalls and is cut": Faults(stall_after=6, stall_seconds=0.05),
    "is slow": Faults(delay=0.01, cut_every=10),
}


async def told(client, chat):
    page = await client.session(chat, after=0, limit=1000, tail=False)
    return page["events"]


@pytest.mark.parametrize("name", FAULTS)
async def test_our_client_loses_nothing_when_its_connection(name, live_server, monkeypatch):
    monkeypatch.setattr("agentsdock.client.events.FIRST_PAUSE_SECONDS", 0.01)
    faults = FAULTS[name]
    with trio.fail_after(60):
        async with open_proxy(live_server.url, faults) as proxy, Client(proxy.url, TOKEN) as client:
            chat = (await client.create_session(backend="cursor"))["id"]
            await client.post_turn(chat, TURN["prompt"])
            seen = []
            async with client.events(chat) as events:
                async for event in events:
                    seen.append(event)
                    if event["type"] == "turn_finished":
                        break
            truth = await told(client, chat)
    assert check_seen(seen, truth) == []
    assert proxy.check_cursors() == []
    handed_on = [seq for passage in proxy.passages for seq in passage.seqs]
    if not faults.abort:
        assert handed_on == [event["seq"] for event in truth], "each event over the wire once"
    assert sum(passage.cut for passage in proxy.passages) >= (1 if faults.cut_every != 10 else 0)


class Liar(FaultProxy):
    """A server that breaks a promise: ours, with its frames changed on the way."""

    lie = ""

    async def _hand_on(self, client, passage, opcode, frame, payload):
        event = json.loads(payload) if opcode == TEXT else {}
        if event.get("type") == self.lie.partition(" ")[2]:
            match self.lie.partition(" ")[0]:
                case "drop":
                    return
                case "repeat":
                    await client.send_all(frame)
                case "hold":
                    self.held = frame
                    return
                case "change":
                    frame = frame.replace(b'"text"', b'"tex_"')
        await super()._hand_on(client, passage, opcode, frame, payload)
        if held := vars(self).pop("held", None):
            await client.send_all(held)


@contextlib.asynccontextmanager
async def lying(url, lie, monkeypatch):
    monkeypatch.setattr("agentsdock.testing.conformance.proxy.FaultProxy", Liar)
    async with open_proxy(url) as proxy:
        proxy.lie = lie
        yield proxy


LIES = {
    "drop assistant_text": "lost",
    "repeat assistant_text": "doubled",
    "hold provider_session": "order",
    "repeat turn_finished": "doubled",
    "change assistant_text": "changed",
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_is_caught_that_does(lie, live_server, monkeypatch):
    monkeypatch.setattr(scenarios, "SCENARIO_SECONDS", 20)
    async with lying(live_server.url, lie, monkeypatch) as proxy:
        results = await run_scenarios(
            asked(proxy.url),
            [
                scenarios.a_turn_is_told_once_and_in_order,
                scenarios.pages_and_sockets_tell_the_same,
                scenarios.each_cursor_gives_what_follows_it,
            ],
        )
    rules = {violation.rule for result in results for violation in result.violations}
    assert LIES[lie] in rules


async def follow(proxy, chat, cursor):
    """A client of its own making; ``cursor`` says what it asks for after its last event."""
    seen = []
    while not seen or seen[-1]["type"] != "turn_finished":
        path = f"/api/sessions/{chat}/events"
        after = cursor(seen[-1]["seq"]) if seen else 0
        headers = {"X-AgentsDock-Token": TOKEN}
        async with open_socket(proxy.url, path, headers, after=after) as socket:
            while (event := await socket.next()) is not None:
                seen.append(event)
                if event["type"] == "turn_finished":
                    break
    return seen


@pytest.mark.parametrize(
    "cursor, rule",
    [
        (lambda last: last, None),
        (lambda last: last - 1, "doubled"),
        (lambda last: last + 1, "lost"),
    ],
)
async def test_a_client_is_judged_by_what_it_sees_and_asks_for(cursor, rule, live_server):
    async with (
        open_proxy(live_server.url, Faults(cut_every=4)) as proxy,
        Client(live_server.url, TOKEN) as client,
    ):
        chat = (await client.create_session(backend="cursor"))["id"]
        await client.post_turn(chat, TURN["prompt"])
        with trio.fail_after(30):
            seen = await follow(proxy, chat, cursor)
        truth = await told(client, chat)
    for violations in (check_seen(seen, truth), proxy.check_cursors()):
        assert {violation.rule for violation in violations} <= {rule, "order"}
        assert bool(violations) is (rule is not None)


async def test_the_proxy_tells_what_it_handed_on(live_server):
    async with open_proxy(live_server.url, Faults(cut_every=2)) as proxy:
        async with Client(live_server.url, TOKEN) as client:
            chat = (await client.create_session(backend="cursor"))["id"]
        path = f"/api/sessions/{chat}/events"
        headers = {"X-AgentsDock-Token": TOKEN}
        async with open_socket(proxy.url, path, headers, after=-3) as socket:
            assert (await socket.next())["seq"] == 1
            async with Client(live_server.url, TOKEN) as client:
                await client.delete_session(chat)
            assert await socket.next() is None
            assert socket.close_code == 4404
        (passage,) = proxy.passages
        assert (passage.path, passage.after, passage.seqs) == (path, 0, [1])
        assert (passage.close_code, passage.cut) == (4404, False)
        proxy.faults = Faults(refuse=True)
        with pytest.raises(OSError):
            async with open_socket(proxy.url, path, headers):
                pass


def test_the_command_asks_a_server_and_says_how_it_went(live_server):
    options = ["--url", live_server.url, "--token", TOKEN]
    options += ["--prompt", TURN["prompt"], "--long-prompt", LONG["prompt"]]
    done = CliRunner().invoke(main, ["conformance", "server", *options])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * 10 + ["skip"]


def test_the_command_says_that_a_token_is_wrong(live_server):
    options = ["--url", live_server.url, "--token", "wrong"]
    done = CliRunner().invoke(main, ["conformance", "server", *options])
    assert done.exit_code == 1
    assert "401" in done.output
    assert "unauthorized" in done.output


class Deaf(FaultProxy):
    """A server that forgets a reader who was slow, without a word."""

    async def _hand_on(self, client, passage, opcode, frame, payload):
        with trio.move_on_after(0.3) as slow:
            await client.send_all(frame)
        if slow.cancelled_caught:
            await trio.sleep_forever()


async def test_a_server_that_forgets_slow_readers_is_caught(live_server, monkeypatch):
    monkeypatch.setattr("agentsdock.testing.conformance.proxy.FaultProxy", Deaf)
    monkeypatch.setattr(scenarios, "SILENCE_SECONDS", 0.5)
    async with open_proxy(live_server.url) as proxy:
        [result] = await run_scenarios(
            asked(proxy.url), [scenarios.a_slow_reader_holds_nobody_up_and_loses_nothing]
        )
    assert any("silent" in violation.message for violation in result.violations)


def test_the_commands_for_a_client_judge_it(live_server, tmp_path):
    async def run():
        async with Client(live_server.url, TOKEN) as client:
            chat = (await client.create_session(backend="cursor"))["id"]
            await client.post_turn(chat, TURN["prompt"])
            async with client.events(chat) as events:
                while (await anext(events))["type"] != "turn_finished":
                    pass
            return chat, await told(client, chat)

    chat, truth = trio.run(run)
    seen = tmp_path / "seen.jsonl"
    options = ["--url", live_server.url, "--token", TOKEN, "--chat", chat, str(seen)]
    for kept, status in ((truth, 0), (truth[1:], 1), ([*truth, truth[-1]], 1)):
        seen.write_text("".join(json.dumps(event) + "\n" for event in kept))
        done = CliRunner().invoke(main, ["conformance", "check", *options])
        assert done.exit_code == status, done.output
    seen.write_text("{\n")
    done = CliRunner().invoke(main, ["conformance", "check", *options])
    assert "line 1" in done.output


def test_the_proxy_command_runs_until_it_is_interrupted(live_server):
    command = [sys.executable, "-m", "agentsdock", "conformance", "proxy", "--cut-every", "2"]
    with subprocess.Popen(
        [*command, "--url", live_server.url], stdout=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)

        async def health():
            async with Client(url, TOKEN) as client:
                return await client.health()

        assert trio.run(health)["ok"] is True
        process.send_signal(2)
        rest, _ = process.communicate(timeout=20)
    assert rest.splitlines() == ["0 event sockets", "nothing was broken"]
    assert process.returncode == 0
