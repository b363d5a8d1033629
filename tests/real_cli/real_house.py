"""What the tests do with a server that runs the real CLIs."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

import httpx
import trio
from attrs import frozen

from agentsdock.client.http import Client
from agentsdock.testing.replay import replay

HERE = pathlib.Path(__file__).parent
TOKEN = "real-cli-SECRET-9"
KEPT = ("PATH", "LANG", "PYTHONPYCACHEPREFIX")
"""What the house has of our environment: no key or configuration folder of ours reaches a CLI."""
TERMINAL = ("turn_finished", "turn_stopped")
FREE = {
    "claude": {"claude_permission_mode": "bypassPermissions"},
    "codex": {"codex_sandbox_mode": "danger-full-access"},
}
"""Session fields under which every tool runs."""

CODEX_CONFIG = """\
model = "gpt-5.5"
model_provider = "stub"
check_for_update_on_startup = false
[analytics]
enabled = false
[feedback]
enabled = false
[features]
plugins = false
[model_providers.stub]
name = "Stub"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 2000
"""


def namespace():
    """The command that gives a program a network of its own, or a reason why there is none."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None, "there is no unshare program"
    command = [unshare, "-n"] if os.geteuid() == 0 else [unshare, "-rn"]
    tried = subprocess.run([*command, "true"], capture_output=True)
    if tried.returncode != 0:
        return None, f"no network namespace: {tried.stderr.decode(errors='replace').strip()}"
    return command, None


@frozen
class House:
    """``url`` is the server's address, ``model_url`` the scripted model's, both from outside."""

    url: str
    model_url: str
    folder: pathlib.Path

    @property
    def home(self):
        return self.folder / "home"

    @property
    def state(self):
        return self.folder / "state"

    def client(self):
        return Client(self.url, TOKEN)

    def asked(self):
        """What the CLIs asked of the model so far."""
        return httpx.get(f"{self.model_url}/stub/requests", trust_env=False).json()

    def workspace(self, name):
        """A new repository."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        return folder


@contextlib.contextmanager
def open_house(folder, clis, *, codex_model="{model}", **environ):
    """A server with the real CLIs and a scripted model, alone on a loopback of their own.

    ``codex_model`` is where Codex looks for its model.
    """
    command, reason = namespace()
    assert command is not None, reason
    home, scratch = folder / "home", folder / "scratch"
    for one in (home, scratch):
        one.mkdir(parents=True)
    told = {
        "state_dir": str(folder / "state"),
        "token": TOKEN,
        "files": {str(home / ".codex/config.toml"): CODEX_CONFIG.replace("{address}", codex_model)},
        "environ": {
            "HOME": str(home),
            "TMPDIR": str(scratch),
            "CLAUDE_BIN": str(clis.claude),
            "CODEX_BIN": str(clis.codex),
            "STUB_KEY": "test-key-for-the-stub",
            "ANTHROPIC_BASE_URL": "{model}",
            "ANTHROPIC_API_KEY": "test-key-for-the-stub",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
            "AGENTSDOCK_RUNTIME_CATALOG_TIMEOUT_SECONDS": "30",
            **environ,
        },
    }
    with contextlib.ExitStack() as stack:
        outside = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        fds = [one.fileno() for one in outside]
        process = stack.enter_context(
            subprocess.Popen(
                [*command, sys.executable, str(HERE / "loopback_house.py"), json.dumps(told)]
                + [str(fd) for fd in fds],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={name: os.environ[name] for name in KEPT if name in os.environ},
                pass_fds=fds,
            )
        )
        try:
            assert process.stdout.readline() == b"\n", "the house did not open"
            urls = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in outside]
            yield House(*urls, folder)
        finally:
            process.stdin.close()
            process.wait(60)


class Chat:
    """One chat of the house, and its turns."""

    def __init__(self, house, client, session):
        self.house = house
        self.client = client
        self.id = session["id"]
        self.backend = session["backend"]
        self.seq = 0

    @classmethod
    async def open(cls, house, client, backend, **fields):
        return cls(house, client, await client.create_session(backend=backend, **fields))

    async def post(self, prompt):
        return await self.client.post_turn(self.id, prompt)

    async def until(self, wanted):
        """The events up to the first that is ``wanted``."""
        told = []
        with trio.fail_after(120):
            async with self.client.events(self.id, after=self.seq) as events:
                async for event in events:
                    told.append(event)
                    self.seq = event["seq"]
                    if wanted(event):
                        return told
        raise AssertionError("the socket ended")

    async def end(self):
        """The events up to the end of the turn."""
        return Turn(await self.until(lambda event: event["type"] in TERMINAL))

    async def turn(self, prompt):
        await self.post(prompt)
        return await self.end()

    async def tool(self):
        """Until a tool has started."""
        return await self.until(lambda event: event["type"] == "tool_started")

    async def session(self):
        return (await self.client.session(self.id, limit=1))["session"]

    def capsule(self, run_id):
        return self.house.state / "capsules" / f"{run_id}.capsule"


@frozen
class Turn:
    events: list

    @property
    def last(self):
        return self.events[-1]

    def of(self, kind):
        return [event for event in self.events if event["type"] == kind]

    @property
    def verdict(self):
        last = self.last
        state = "stopped" if last["stopped"] else "failed" if last["is_error"] else "succeeded"
        return state, last["code"]


def judged_again(chat, turn):
    """What the recording of a turn is judged to be."""
    path = chat.capsule(turn.last["run_id"])
    packed = path.with_name(f"{path.name}.gz")
    return replay(path if path.exists() else packed)


def alive(word):
    """Command lines of living processes that hold ``word``."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in line:
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found
