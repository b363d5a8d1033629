"""What the helper programs of agents share: a turn's authority, and asking the server with it.

Standard library only: an agent waits for each of them to start.
"""

import http.client
import ipaddress
import json
import os
import stat
import sys
import urllib.parse
from typing import Any, NamedTuple, NoReturn

MAX_AUTHORITY_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 4 * 1024 * 1024
TIMEOUT_SECONDS = 300


class Authority(NamedTuple):
    session_id: str
    run_id: str
    secret: str


def read_authority(path: str) -> Authority:
    """Ends the program unless it is a plain file that only its owner can read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        fail(f"the authority file cannot be read: {error.strerror}")
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        fail("the authority file is no file")
    if found.st_mode & 0o077:
        fail("the authority file is open to others")
    with open(descriptor, "rb") as file:
        try:
            content = json.loads(file.read(MAX_AUTHORITY_BYTES))
            names = ("source_session_id", "source_run_id", "provider_capability")
            return Authority(*(str(content[name]) for name in names))
        except (ValueError, KeyError, TypeError):
            fail("the authority file holds no authority")


def ask(
    method: str, path: str, authority: Authority, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The server's answer; ends the program unless it is one.

    Straight to the loopback: proxies are not used and redirects not followed.
    """
    host, port = _address(os.environ.get("AGENTSDOCK_SERVER_URL", ""))
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    headers = {
        "Content-Type": "application/json",
        "X-AgentsDock-Provider-Capability": authority.secret,
    }
    data = None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read(MAX_ANSWER_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        fail(f"the server did not answer: {error}")
    finally:
        connection.close()
    found = _decoded(text)
    if answer.status != 200 or not isinstance(found, dict):
        fail(f"refused ({answer.status}): {json.dumps(found)}")
    return found


def segment(text: str) -> str:
    """An id as one part of a path, whatever is in it."""
    return urllib.parse.quote(text, safe="")


def text_or_stdin(text: str) -> str:
    """The text, or all of the standard input for ``-``."""
    return sys.stdin.read() if text == "-" else text


def finish(answer: dict[str, Any], *, as_asked: bool) -> int:
    """Print the answer; ends the program as failed if it is not for what was asked."""
    if not as_asked:
        fail("the server's receipt is not for what was sent")
    print(json.dumps(answer))
    return 0


def fail(reason: str) -> NoReturn:
    print(f"{os.path.basename(sys.argv[0])}: {reason}", file=sys.stderr)
    raise SystemExit(1)


def _address(url: str) -> tuple[str, int | None]:
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    else:
        host = host if parts.scheme == "http" else ""
    if not _is_loopback(host):
        fail("AGENTSDOCK_SERVER_URL is not an address of this machine")
    return host, port


def _decoded(text: bytes) -> Any:
    if len(text) > MAX_ANSWER_BYTES:
        fail(f"the server's answer is longer than {MAX_ANSWER_BYTES} bytes")
    try:
        return json.loads(text)
    except ValueError as error:
        fail(f"the server did not answer: {error}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
