"""Two hundred hostile trees as turns of a real server, each ended in one of six ways.

Nothing that a tree entered in its ledger may be alive afterwards, each turn has exactly one
terminal event, and a client that reconnects all the time has seen every event once, in order.
The same seed grows the same tree: a failure names the seeds of its batch.
"""

import os
import pathlib
import select
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import trio
from census import entered, living, root
from cli_program import install_cli
from witness import Witness, read_all, said_in_order

from agentsdock.chats.dock import identify
from agentsdock.guard import procs
from agentsdock.guard.orphans import reap
from agentsdock.guard.process_guard import LIBC, PR_SET_CHILD_SUBREAPER, become_subreaper
from agentsdock.guard.sweep import SweepRecord, sweep
from agentsdock.model.sessions import BACKENDS
from agentsdock.testing.server import ServerProcess, running_server

pytestmark = pytest.mark.chaos

TOKEN = "chaos-token"
BATCH_SECONDS = 90
GONE_SECONDS = 5
MOST_PER_CONNECTION = 11
WAYS = ("result", "linger", "ask", "stop", "stop", "guard", "guard", "crash", "crash", "crash")
"""How the ten trees of a batch end; a crash takes the server, in every other batch with guards."""
SPEECH = {"result": "result", "linger": "linger", "ask": "ask"}
BATCHES = [range(first, first + len(WAYS)) for first in range(0, 200, len(WAYS))]


class Tree:
    """One hostile turn, and the client that follows it."""

    def __init__(self, seed: int, way: str, ledger: pathlib.Path, chat: str) -> None:
        self.way = way
        self.ledger = ledger
        self.chat = chat
        self.witness = Witness(chat, per_connection=5 + seed % (MOST_PER_CONNECTION - 4))
        self.run = ""
        self.prompt = f"[[fake ledger={ledger} seed={seed} end={SPEECH.get(way, 'stay')}]]"

    @property
    def ending(self) -> dict:
        return self.witness.timeline.endings[self.run]

    async def grown(self) -> None:
        await self.witness.hear(lambda timeline: "grown" in timeline.texts(self.run))

    async def ended(self) -> None:
        await self.witness.hear(lambda timeline: self.run in timeline.endings)

    def guard(self) -> int:
        pid, began = root(self.ledger)
        cli = procs.look(pid)
        assert cli is not None
        assert cli.start_ticks == began
        return cli.parent


class Dock:
    """One life of the server, and what a client does with it."""

    def __init__(self, server: ServerProcess, nursery: trio.Nursery) -> None:
        self.server = server
        self.http = httpx.AsyncClient(
            base_url=server.url,
            headers={"X-AgentsDock-Token": TOKEN},
            trust_env=False,
            verify=False,  # spares the reading of certificates
            timeout=60,
        )
        self._nursery = nursery

    async def call(self, method: str, path: str, **body: object) -> dict:
        answer = await self.http.request(method, path, json=body or None)
        return answer.raise_for_status().json()

    async def plant(self, seed: int, way: str, ledgers: pathlib.Path) -> Tree:
        # The question that nobody answers is Cursor's.
        backend = "cursor" if way == "ask" else BACKENDS[seed % len(BACKENDS)]
        answer = await self.call("POST", "/api/sessions", backend=backend)
        tree = Tree(seed, way, ledgers / str(seed), answer["session"]["id"])
        self._nursery.start_soon(tree.witness.follow, self.server)
        tree.run = await self.say(tree, tree.prompt)
        return tree

    async def say(self, tree: Tree, prompt: str) -> str:
        path = f"/api/sessions/{tree.chat}/turns"
        return (await self.call("POST", path, prompt=prompt))["run_id"]

    async def end(self, tree: Tree) -> None:
        """Do what the tree's way asks for, but for a crash, and hear its terminal event."""
        if tree.way in ("crash", "stop", "guard"):
            await tree.grown()
        if tree.way == "crash":
            await tree.witness.hear(lambda timeline: len(timeline.events) > MOST_PER_CONNECTION)
            return
        if tree.way == "stop":
            receipt = await self.call("POST", f"/api/sessions/{tree.chat}/stop")
            assert (receipt["outcome"], receipt["tree_empty"]) == ("stopped", True)
        if tree.way == "guard":
            os.kill(tree.guard(), signal.SIGKILL)
        await tree.ended()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    here = pathlib.Path(__file__).parent
    folder = tmp_path_factory.mktemp("bin")
    program, claude, codex = (
        install_cli(folder, here / "hostile_cli.py", name)
        for name in ("cursor-agent", "claude", "codex")
    )
    return {
        "CURSOR_BIN": str(program),
        "CLAUDE_BIN": str(claude),
        "CODEX_BIN": str(codex),
        "AGENTSDOCK_CLAUDE_POST_TERMINAL_EXIT_SECONDS": "0.3",
        "AGENTSDOCK_CODEX_POST_TERMINAL_EXIT_SECONDS": "0.3",
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(program.parent),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
        "AGENTSDOCK_CURSOR_APPROVAL_WAIT_SECONDS": "1",
        "AGENTSDOCK_CURSOR_POST_TERMINAL_EXIT_SECONDS": "0.3",
        "AGENTSDOCK_JOB_BUSY_RETRY_SECONDS": "5",
    }


@pytest.fixture(scope="module", autouse=True)
def undertaker() -> Iterator[None]:
    """Collect what dies while server and guards are dead: a storm leaves thousands of zombies a
    second, and the init of a container may be too slow to keep the machine's pids free."""
    done = threading.Event()

    def collect() -> None:
        while not done.wait(0.05):
            reap(lambda _: True)

    become_subreaper()
    thread = threading.Thread(target=collect)
    thread.start()
    yield
    done.set()
    thread.join()
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
async def ledgers(tmp_path: pathlib.Path) -> AsyncIterator[pathlib.Path]:
    """Where the trees enter themselves; what a failed test leaves of them is ended."""
    folder = tmp_path / "ledgers"
    folder.mkdir()
    yield folder
    records = [SweepRecord(pid, began) for pid, began in entered(folder)]
    await sweep(records, marker_prefix=f"{identify(tmp_path / 'state').server}:")


@pytest.mark.parametrize("seeds", BATCHES, ids=str)
async def test_nothing_survives_and_nothing_is_lost(
    seeds: range, environment: dict[str, str], ledgers: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    both = bool(BATCHES.index(seeds) % 2)
    state = tmp_path / "state"
    with trio.fail_after(BATCH_SECONDS):
        trees = await first_life(seeds, both, environment, ledgers, state)
        await second_life(trees, environment, ledgers, state)


async def first_life(
    seeds: range,
    both: bool,
    environment: dict[str, str],
    ledgers: pathlib.Path,
    state: pathlib.Path,
) -> list[Tree]:
    with running_server(state, environment, token=TOKEN) as server:
        async with trio.open_nursery() as nursery:
            dock = Dock(server, nursery)
            async with dock.http:
                marker = await marker_prefix(dock)
                trees = [
                    await dock.plant(seed, way, ledgers)
                    for seed, way in zip(seeds, WAYS, strict=True)
                ]
                async with trio.open_nursery() as ending:
                    for tree in trees:
                        ending.start_soon(dock.end, tree)
            guards = [tree.guard() for tree in trees if tree.way == "crash"]
            if both:
                crash_with_guards(server, guards, ledgers / "zygote")
            else:
                crash(server, guards)
            nursery.cancel_scope.cancel()
        if both:
            assert len(living(ledgers, marker)) > len(guards)
        else:
            assert living(ledgers, marker) == []
    return trees


async def second_life(
    trees: list[Tree], environment: dict[str, str], ledgers: pathlib.Path, state: pathlib.Path
) -> None:
    with running_server(state, environment, token=TOKEN) as server:
        async with trio.open_nursery() as nursery:
            dock = Dock(server, nursery)
            async with dock.http:
                assert living(ledgers, await marker_prefix(dock)) == []
                for tree in trees:
                    nursery.start_soon(tree.witness.follow, server)
                    await tree.ended()
                    check_ending(tree)
                    await play_along(dock, tree)
            nursery.cancel_scope.cancel()
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


async def play_along(dock: Dock, tree: Tree) -> None:
    """The next turn works, and what is stored is what was heard."""
    run = await dock.say(tree, "[[fake]]")
    ended = await tree.witness.hear(lambda timeline: timeline.endings.get(run))
    assert ended["code"] is None
    assert await read_all(dock.http, tree.chat) == tree.witness.timeline.events


def check_ending(tree: Tree) -> None:
    ending = tree.ending
    told = {
        "result": ("turn_finished", None),
        "linger": ("turn_finished", None),
        "ask": ("turn_finished", "approval_required"),
        "stop": ("turn_finished", "stopped"),
        "guard": ("turn_finished", "internal_error"),
        "crash": ("turn_stopped", "server_restart"),
    }
    assert (ending["type"], ending["code"]) == told[tree.way]
    assert ending["tree_empty"] is True
    assert said_in_order(tree.witness.timeline.texts(tree.run))


def crash(server: ServerProcess, guards: list[int]) -> None:
    """SIGKILL the server; until its guards have left by themselves."""
    with held(guards) as pidfds:
        server.process.kill()
        server.process.wait()
        await_exits(pidfds)


def crash_with_guards(server: ServerProcess, guards: list[int], ledger: pathlib.Path) -> None:
    """SIGKILL the server and its guards before they notice; the zygote is left stopped."""
    zygote = procs.look(guards[0]).parent
    ledger.write_text(f"{zygote} {procs.look(zygote).start_ticks}\n")
    with held([*guards, zygote]) as pidfds:
        for pidfd in pidfds:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        server.process.kill()
        server.process.wait()
        for pidfd in pidfds[:-1]:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        await_exits(pidfds[:-1])


@contextmanager
def held(pids: list[int]) -> Iterator[list[int]]:
    with ExitStack() as stack:
        pidfds = [os.pidfd_open(pid) for pid in pids]
        for pidfd in pidfds:
            stack.callback(os.close, pidfd)
        yield pidfds


def await_exits(pidfds: list[int]) -> None:
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(GONE_SECONDS * 1000), "a guard did not leave"


async def marker_prefix(dock: Dock) -> str:
    """What begins the marker of every run of this installation."""
    return f"{(await dock.call('GET', '/api/health'))['server_identity']}:run_"
