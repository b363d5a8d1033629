"""A server of one's own, as a process: started, found, talked to, stopped."""

import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen


class ServerNotReady(Exception):
    """The server ended or gave no answer in time; the message holds the end of its log."""


@frozen
class ServerProcess:
    """A running server.  ``token`` is None where it needs none; ``log`` is its output."""

    process: subprocess.Popen[bytes]
    state_dir: pathlib.Path
    log: pathlib.Path
    url: str
    token: str | None

    def stop(self, timeout: float = 20.0) -> int:
        """SIGTERM, then wait for the exit status; a server that overstays is killed."""
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@contextlib.contextmanager
def running_server(
    state_dir: str | os.PathLike[str],
    environ: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    token: str | None = None,
    ready_seconds: float = 30.0,
    program: Sequence[str] = (sys.executable, "-m", "agentsdock"),
) -> Iterator[ServerProcess]:
    """``agentsdock serve`` on the loopback, ready to answer; ended when the block is left.

    ``environ`` is added to this process's environment, less any ``AGENTSDOCK_`` setting of it.
    Port 0 lets the system choose.  ``program`` begins the command: another installation, or a
    wrapper that becomes the server.  Raises ServerNotReady.
    """
    state = pathlib.Path(state_dir).absolute()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    address = state / "server.json"
    address.unlink(missing_ok=True)
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("AGENTSDOCK_", "ZENITHBOT_", "ZENITHDOCK_"))
    }
    env |= {"AGENTSDOCK_MIN_START_AVAILABLE_MEM_MB": "0", **(environ or {})}
    if token is not None:
        env["AGENTSDOCK_AGENT_TOKEN"] = token
    command = [*program, "serve", "--bind", "127.0.0.1"]
    command += ["--port", str(port), "--state-dir", str(state)]
    log = state / "server.log"
    log.touch(0o600)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            process_group=0,  # ctrl-C is for whoever started the server, not for the server
        )
    try:
        url = _wait_ready(process, address, log, time.monotonic() + ready_seconds)
        server = ServerProcess(process, state, log, url, token)
        yield server
    finally:
        if process.poll() is None:
            ServerProcess(process, state, log, "", token).stop()


def _wait_ready(
    process: subprocess.Popen[bytes], address: pathlib.Path, log: pathlib.Path, deadline: float
) -> str:
    while process.poll() is None and time.monotonic() < deadline:
        url = _written_url(address, process.pid)
        if url is not None and _answers(url):
            return url
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    state = "ended" if process.poll() is not None else "did not answer in time"
    tail = log.read_text(errors="replace")[-2000:]
    raise ServerNotReady(f"the server {state}; the end of its log:\n{tail}")


def _written_url(address: pathlib.Path, pid: int) -> str | None:
    try:
        written: dict[str, Any] = json.loads(address.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(written["url"]) if written.get("pid") == pid else None


def _answers(url: str) -> bool:
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
