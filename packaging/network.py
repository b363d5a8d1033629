"""Who listens on a port, and whether it is the server that was just started."""

import contextlib
import errno
import http.client
import json
import os
import pathlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prefix import InstallError, say

ANSWER_SECONDS = 5
LOOK_SECONDS = 0.2
HEARTBEAT_SECONDS = 10
NEARBY = 20


@dataclass(frozen=True)
class Address:
    bind: str
    port: int

    @property
    def host(self) -> str:
        """Where this machine reaches it."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.bind, self.bind)  # noqa: S104

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def is_free(address: Address) -> bool:
    """Raises InstallError for an address that this machine has not."""
    try:
        found = socket.getaddrinfo(address.bind, address.port, type=socket.SOCK_STREAM)
        for family, _, _, _, name in found:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(name)
                sock.listen(1)
        return True
    except socket.gaierror:
        raise InstallError(f"{address.bind} has no address") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise InstallError(f"cannot listen on {address.bind}: {error.strerror}") from None


def nearby(address: Address) -> Address | None:
    """The next free port."""
    ports = range(address.port + 1, min(address.port + 1 + NEARBY, 65_536))
    return next(filter(is_free, (Address(address.bind, port) for port in ports)), None)


def owner(port: int) -> str:
    """Who listens on a port, as far as the system tells us."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{words[9]}]")
    for folder in pathlib.Path("/proc").glob("[0-9]*") if inodes else ():
        with contextlib.suppress(OSError):
            if any(os.readlink(one) in inodes for one in (folder / "fd").iterdir()):
                return f"process {folder.name} ({(folder / 'comm').read_text().strip()})"
    return "another program"


def health(address: Address, token: str | None) -> dict[str, Any]:
    """What a server says of itself.  Raises OSError, and ValueError for any other answer."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=ANSWER_SECONDS)
    try:
        headers = {"X-AgentsDock-Token": token} if token else {}
        connection.request("GET", "/api/health", headers=headers)
        answer = connection.getresponse()
        body = answer.read(4 * 1024 * 1024)
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        return dict(json.loads(body))
    except TypeError:
        raise ValueError("no object") from None
    except http.client.HTTPException as error:
        raise ValueError(f"{type(error).__name__}") from error
    finally:
        connection.close()


def instance(address: Address, token: str | None) -> str | None:
    """Which life of a server answers there, if one does."""
    try:
        return str(health(address, token).get("server_instance_id"))
    except (OSError, ValueError):
        return None


def wait_healthy(
    address: Address,
    token: str | None,
    expected: Mapping[str, str],
    not_instance: str | None,
    alive: Callable[[], bool],
    seconds: float,
) -> None:
    """Wait until the new server, and nobody else, answers.

    A start that takes long (a large database that is migrated) is waited for as long as the
    process lives, at most ``seconds``.  Raises InstallError.
    """
    began = told = time.monotonic()
    while True:
        reason = unhealthy(address, token, expected, not_instance)
        if reason is None:
            return
        now = time.monotonic()
        if not alive():
            raise InstallError("the server ended instead of answering")
        if now - began > seconds:
            raise InstallError(f"{reason} after {seconds:g} s")
        if now - told > HEARTBEAT_SECONDS:
            told = now
            say(f"    still waiting ({now - began:.0f} s): {reason}")
        time.sleep(LOOK_SECONDS)


def unhealthy(
    address: Address,
    token: str | None,
    expected: Mapping[str, str],
    not_instance: str | None = None,
) -> str | None:
    """Why what answers there is not what was expected; None if it is."""
    try:
        found = health(address, token)
    except (OSError, ValueError) as error:
        return f"no healthy answer from {address} ({error})"
    wrong = [
        f"{name} is {found.get(name)!r}, not {value!r}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    if found.get("server_instance_id") in (None, not_instance):
        wrong.append("the same server as before answers")
    return f"{address} answers, but {'; '.join(wrong)}" if wrong else None
