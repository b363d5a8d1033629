"""Kills the server before and after each commit of a scenario and tells what came of it.

``make crash-matrix`` writes ``docs/crash-matrix.md``.

Each point has a server of its own, halted there (``halting_server``).  When the client has
been told all that the server could say until then, the server is killed and started anew, now
as it is.  What must hold at every point is asserted on the way; the page tells the rest.
"""

import contextlib
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence

import httpx
import trio
import trio.testing
from attrs import define, field, frozen
from cli_program import install_cli
from halting_server import HALTED
from witness import Timeline, Witness, read_all

from agentsdock.testing.server import ServerNotReady, ServerProcess, running_server

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "crash-matrix.md"
TOKEN = "crash-token"
AT_ONCE = 3
POINT_SECONDS = 120
NEVER = 10_000
MESSAGES = ("first", "second", "third", "fourth")


@frozen
class Point:
    """Before or after commit ``number``, counted from 1."""

    moment: str
    number: int


Case = tuple[Point, Point | None]
"""Where the server is killed, and where its next start is killed too."""


@define
class Scene:
    """A place for one server, its client and its CLIs."""

    folder: pathlib.Path
    gates: dict[str, int] = field(factory=dict)
    commits: list[str] = field(factory=list)
    """Those that were made, in words."""
    halted_at: str = ""

    @property
    def gate_folder(self) -> pathlib.Path:
        return self.folder / "gates"

    def environment(self, halt: Point) -> dict[str, str]:
        return {
            "CURSOR_BIN": str(self.folder / "cursor-agent"),
            "AGENTSDOCK_BACKEND": "cursor",
            "AGENTSDOCK_AGENT_CWD": str(self.folder),
            "AGENTSDOCK_STOP_GRACE_SECONDS": "0.5",
            "AGENTSDOCK_JOB_BUSY_RETRY_SECONDS": "5",
            "HALT_PIPE": str(self.folder / "commits"),
            "HALT_AT": f"{halt.moment} {halt.number}",
        }

    def prompt(self, name: str) -> str:
        return f"[[fake step={name} gates={self.gate_folder}]]"

    def steps(self, name: str, count: int) -> None:
        os.write(self.gates[name], b"x" * count)

    def starts(self, name: str) -> int:
        """How often a CLI was started for a message."""
        with contextlib.suppress(FileNotFoundError):
            return (self.gate_folder / "starts").read_text().split().count(name)
        return 0


def make_scene(folder: pathlib.Path) -> Scene:
    folder.mkdir()
    scene = Scene(folder)
    install_cli(folder, HERE / "stepping_cli.py")
    os.mkfifo(folder / "commits", 0o600)
    scene.gate_folder.mkdir()
    for name in MESSAGES:
        os.mkfifo(scene.gate_folder / name, 0o600)
    return scene


class Client:
    """The client of both lives.  ``told`` holds each answer by what was asked."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.told: dict[str, dict] = {}
        self.asked: list[str] = []
        self.witness: Witness | None = None
        self.http: httpx.AsyncClient

    @contextlib.asynccontextmanager
    async def at(self, server: ServerProcess) -> AsyncIterator[None]:
        async with httpx.AsyncClient(
            base_url=server.url,
            headers={"X-AgentsDock-Token": TOKEN},
            trust_env=False,
            verify=False,  # spares the reading of certificates
            timeout=POINT_SECONDS,
        ) as self.http:
            yield

    async def ask(self, what: str, asking: Awaitable[httpx.Response]) -> dict:
        """Ask for something that changes something, and note the answer."""
        self.asked.append(what)
        self.told[what] = (await asking).raise_for_status().json()
        return self.told[what]

    @property
    def unanswered(self) -> str:
        return next((what for what in self.asked if what not in self.told), "")

    @property
    def chat(self) -> str:
        assert self.witness is not None
        return self.witness.chat

    async def send(self, name: str) -> httpx.Response:
        """Post a message under a key of its own."""
        return await self.http.post(
            f"/api/sessions/{self.chat}/turns",
            json={"prompt": self.scene.prompt(name)},
            headers={"Idempotency-Key": name},
        )

    async def saw(self, kind: str, times: int = 1) -> None:
        def condition(timeline: Timeline) -> bool:
            return sum(event["type"] == kind for event in timeline.events) >= times

        assert self.witness is not None
        await self.witness.hear(condition)


async def scenario(client: Client, server: ServerProcess, nursery: trio.Nursery) -> None:
    """Everything that a client can make durable, one after the other."""
    scene, http, ask = client.scene, client.http, client.ask
    created = await ask("chat", http.post("/api/sessions", json={"backend": "cursor"}))
    client.witness = Witness(created["session"]["id"])
    nursery.start_soon(client.witness.follow, server)
    await ask("first", client.send("first"))
    await client.saw("process_started")
    for kind in ("provider_session", "tool_started", "tool_finished"):
        scene.steps("first", 1)
        await client.saw(kind)
    await ask("second", client.send("second"))
    scene.steps("first", 1)
    await client.saw("assistant_text")
    scene.steps("first", 1)
    await client.saw("process_started", times=2)
    scene.steps("second", 1)
    await client.saw("provider_session", times=2)
    await ask("third", client.send("third"))
    row = (await ask("fourth", client.send("fourth")))["queued_id"]
    path = f"/api/sessions/{client.chat}"
    await ask("run now", http.post(f"{path}/queue/{row}/run-now"))
    await client.saw("process_started", times=3)
    await ask("stop", http.post(f"{path}/stop"))
    await ask("new title", http.patch(path, json={"title": "Renamed"}))
    await ask("delete", http.delete(path))


async def first_life(scene: Scene, client: Client, halt: Point) -> None:
    """Run the scenario up to the halt, and kill."""
    program = (sys.executable, str(HERE / "halting_server.py"))
    with open_gates(scene), open_commits(scene) as commits:
        async with serving(scene, client, halt, program) as server:
            async with trio.open_nursery() as nursery:

                async def until_halted() -> None:
                    await read_commits(scene, commits)
                    for _ in range(3):  # what was on its way to the client comes before these
                        await client.http.get("/api/health")
                    nursery.cancel_scope.cancel()

                nursery.start_soon(until_halted)
                await scenario(client, server, nursery)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert halt.number == NEVER, "the halt was not reached"
                nursery.cancel_scope.cancel()
            server.process.kill()
            server.process.wait()


async def halted_boot(scene: Scene, halt: Point) -> None:
    """Start the server, and kill it at one of the first commits that it makes."""
    program = (sys.executable, str(HERE / "halting_server.py"))

    async def start() -> None:
        with contextlib.suppress(ServerNotReady):  # the first commits come before it listens
            async with serving(scene, Client(scene), halt, program) as server:
                await trio.to_thread.run_sync(server.process.wait)

    with open_commits(scene) as commits:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            os.kill(await read_commits(scene, commits), signal.SIGKILL)


@contextlib.asynccontextmanager
async def serving(
    scene: Scene, client: Client, halt: Point, program: Sequence[str]
) -> AsyncIterator[ServerProcess]:
    with contextlib.ExitStack() as stack:
        life = running_server(
            scene.folder / "state", scene.environment(halt), token=TOKEN, program=program
        )
        server = await trio.to_thread.run_sync(stack.enter_context, life)
        async with client.at(server):
            yield server


@contextlib.contextmanager
def open_gates(scene: Scene) -> Iterator[None]:
    for name in MESSAGES:
        scene.gates[name] = os.open(scene.gate_folder / name, os.O_RDWR | os.O_NONBLOCK)
    try:
        yield
    finally:
        for gate in scene.gates.values():
            os.close(gate)


@contextlib.contextmanager
def open_commits(scene: Scene) -> Iterator[int]:
    pipe = os.open(scene.folder / "commits", os.O_RDWR | os.O_NONBLOCK)
    try:
        yield pipe
    finally:
        os.close(pipe)


async def read_commits(scene: Scene, pipe: int) -> int:
    """Note the commits until one is halted at; the pid of the server that halted."""
    rest = b""
    while True:
        await trio.lowlevel.wait_readable(pipe)
        *whole, rest = (rest + os.read(pipe, 65536)).split(b"\n")
        for line in whole:
            told, *halt = line.decode().split(" ", 2)
            if told == HALTED:
                pid, scene.halted_at = halt
                return int(pid)
            scene.commits.append(line.decode())


# What came of it


@frozen
class Outcome:
    """In words: what the client still waited for, what was there, what a repeat gave."""

    unanswered: str
    after: str
    again: str


async def last_life(scene: Scene, client: Client) -> Outcome:
    """Start the server as it is, let it come to rest, and ask again for what was asked."""
    unanswered = client.unanswered
    program = (sys.executable, "-m", "agentsdock")
    async with serving(scene, client, Point("before", NEVER), program) as server:
        chats = (await client.http.get("/api/sessions")).json()["sessions"]
        if chats:
            async with trio.open_nursery() as nursery:
                outcome = await look_at(client, chats, server, nursery, unanswered)
                nursery.cancel_scope.cancel()
        else:
            assert "chat" not in client.told or "delete" in client.asked
            outcome = Outcome(unanswered, "no chat", await repeat(client))
        assert await trio.to_thread.run_sync(server.stop) == 0
        assert "Traceback" not in server.log.read_text()
    return outcome


async def look_at(
    client: Client,
    chats: list[dict],
    server: ServerProcess,
    nursery: trio.Nursery,
    unanswered: str,
) -> Outcome:
    assert "delete" not in client.told
    client.witness = client.witness or Witness(chats[0]["id"])
    assert [chat["id"] for chat in chats] == [client.chat]
    nursery.start_soon(client.witness.follow, server)
    await at_rest(client)
    check(client)
    after = describe(client, chats[0]["title"])
    again = await repeat(client)
    await at_rest(client)
    check(client)
    assert await read_all(client.http, client.chat) == client.witness.timeline.events
    return Outcome(unanswered, after, again)


async def at_rest(client: Client) -> None:
    """Until all that is stored by now was heard, and nothing runs or is about to."""
    page = (await client.http.get(f"/api/sessions/{client.chat}?limit=1")).json()
    await client.witness.hear(
        lambda timeline: len(timeline.events) >= page["latest_seq"] and timeline.quiet
    )


def check(client: Client) -> None:
    """What was acknowledged is there, and nothing was run twice."""
    timeline = client.witness.timeline
    for name in MESSAGES:
        runs = runs_of(timeline, name)
        rows = rows_of(timeline, name)
        assert len(runs) <= 1
        assert len(rows) <= 1
        assert client.scene.starts(name) <= len(runs), "a CLI ran without a run of its own"
        if name in client.told:
            told = client.told[name]
            assert [told["queued_id"]] == rows if told["queued"] else [told["run_id"]] == runs
    if "run now" in client.told:
        [forced] = of_message(timeline, "turn_started", "fourth")
        third = of_message(timeline, "turn_started", "third")
        assert all(forced["seq"] < event["seq"] for event in third)
    if "new title" in client.told:
        assert client.told["new title"]["session"]["title"] == "Renamed"


def runs_of(timeline: Timeline, name: str) -> list[str]:
    return [event["run_id"] for event in of_message(timeline, "turn_started", name)]


def rows_of(timeline: Timeline, name: str) -> list[str]:
    return [event["queued_id"] for event in of_message(timeline, "turn_queued", name)]


def of_message(timeline: Timeline, kind: str, name: str) -> list[dict]:
    said = f"step={name} "
    return [e for e in timeline.events if e["type"] == kind and said in e["prompt"]]


def describe(client: Client, title: str) -> str:
    timeline = client.witness.timeline
    told = [f"{name} {state(timeline, name)}" for name in MESSAGES if name in client.asked]
    if "new title" in client.asked:
        told.append("new title" if title == "Renamed" else "old title")
        assert title == "Renamed" or "new title" not in client.told
    return ", ".join(told) or "empty chat"


def state(timeline: Timeline, name: str) -> str:
    for run in runs_of(timeline, name):
        return f"`{timeline.endings[run]['code'] or 'success'}`"
    for row in rows_of(timeline, name):
        return "paused" if timeline.waiting[row] else "waits"
    return "not there"


async def repeat(client: Client) -> str:
    """Send each message again that was sent, under the key that it had."""
    sent = [name for name in MESSAGES if name in client.asked]
    return ", ".join([f"{name} {await repeat_message(client, name)}" for name in sent])


async def repeat_message(client: Client, name: str) -> str:
    timeline = client.witness.timeline
    known = {*runs_of(timeline, name), *rows_of(timeline, name)}
    answer = await client.send(name)
    if not answer.is_success:
        assert "delete" in client.asked
        return f"`{answer.status_code}`"
    told = answer.json()
    ours = told["queued_id"] if told["queued"] else told["run_id"]
    if name in client.told:
        assert told == client.told[name], "the first answer was not given again"
    if ours not in known:
        assert not known, "a message was taken twice"
        return "taken now"
    kind = "same row" if told["queued"] else "same run"
    return kind if told["event"] else f"{kind}, without its event"


# The page

INTRODUCTION = """\
# Crash matrix

What remains when the server is killed with SIGKILL at a commit, and what the next start makes
of it. Written by `make crash-matrix`, which does just that, and checked by a
test; not to be edited.

The scenario: a chat is created and a *first* message sent; while its turn works, a *second*
message waits behind it; while that one's turn works, a *third* and a *fourth* message wait, and
the user runs the fourth now, which ends the second; once its CLI has started the user presses
stop; the chat gets a new title and is deleted. Each message has an `Idempotency-Key`.
What stands together in a line of the commit column is durable together or not at all. The
server is killed before each commit, and after those for whose answer the client waits: after
the others is the same as before the next.

At every point it was checked that

* what the client had an answer to is there after the restart,
* the events that it had seen before and those that it sees afterwards are one timeline without
  gap or repetition, which is the stored one,
* each run has exactly one terminal event, and it is the last of its run,
* no message is run twice and no CLI is started twice for a message,
* a message that was run now has run, and before the one that had waited longer,
* a message that is sent again under its key gives the answer that was given before, if one was.

*Waits for* is what the client had asked for and had no answer to. *After the restart* is what
became of each message that was sent, once the server has come to rest: a code is how its run
ended. *Sent again* is the answer to each message when it is sent again under its key: `404`
means that the chat is gone.
"""
BOOT_COMMITS = 3
HEAD = """
| # | Commit | Killed | Waits for | After the restart | Sent again |
|---|---|---|---|---|---|
"""
BOOT = """
## Killed again while it starts

The same, killed a second time at the first commits of the next start, after a crash while the
fourth message ran and the third waited.
"""


@frozen
class Row:
    point: Point
    commit: str
    outcome: Outcome

    def __str__(self) -> str:
        told = (self.outcome.unanswered, self.outcome.after, self.outcome.again)
        cells = (str(self.point.number), self.commit, self.point.moment, *told)
        return f"| {' | '.join(cells)} |\n"


async def matrix(folder: pathlib.Path) -> str:
    """The page, from scratch.  Fails at the first point where something does not hold."""
    scene = make_scene(folder / "whole")
    await first_life(scene, Client(scene), Point("before", NEVER))
    crash = Point("before", 1 + scene.commits.index("`turn_queue_paused`, row paused"))
    once = [(Point("before", n), None) for n in range(1, len(scene.commits) + 1)]
    twice = [(crash, Point("before", n)) for n in range(1, BOOT_COMMITS + 1)]
    rows = await play_all(folder, [*once, *twice])
    waited = [halt.number for halt, _ in once if rows[halt, None].outcome.unanswered]
    unheard = [(Point("after", n), None) for n in waited]
    rows |= await play_all(folder, unheard)
    once = sorted([*once, *unheard], key=lambda case: (case[0].number, case in unheard))
    page = [INTRODUCTION, HEAD, *(rows[case] for case in once)]
    return "".join(map(str, [*page, BOOT, HEAD, *(rows[case] for case in twice)]))


async def play_all(folder: pathlib.Path, cases: Sequence[Case]) -> dict[Case, Row]:
    rows: dict[Case, Row] = {}
    places = trio.CapacityLimiter(AT_ONCE)

    async def play(case: Case) -> None:
        name = "-".join(f"{point.moment}-{point.number}" for point in case if point)
        async with places:
            rows[case] = await play_case(folder / name, *case)

    async with trio.open_nursery() as nursery:
        for case in cases:
            nursery.start_soon(play, case)
    return rows


async def play_case(folder: pathlib.Path, halt: Point, boot: Point | None) -> Row:
    """From an empty state to the end, with one crash or two."""
    scene = make_scene(folder)
    client = Client(scene)
    with trio.fail_after(POINT_SECONDS):
        await first_life(scene, client, halt)
        if boot is not None:
            await halted_boot(scene, boot)
        return Row(boot or halt, scene.halted_at, await last_life(scene, client))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        PAGE.write_text(trio.run(matrix, pathlib.Path(temporary)))
