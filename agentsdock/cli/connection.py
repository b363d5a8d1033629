"""Which server a client command talks to, and how its failures reach the person."""

import contextlib
import functools
import json
import os
import pathlib
import sys
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from agentsdock.client.http import Client

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:7850"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def state_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=pathlib.Path),
        envvar=[
            "AGENTSDOCK_STATE_DIR",
            "ZENITHBOT_STATE_DIR",
            "AGENTS_SERVER_STATE_DIR",
            "ZENITHBOT_AGENT_DIR",
        ],
        default="~/.agentsdock",
        show_default=True,
        help="The server's state directory.",
    )(command)


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a server; ``command`` gets them as one ``connection``."""

    @state_dir_option
    @click.option("--url", envvar="AGENTSDOCK_URL", help="The server's address.")
    @click.option(
        "--token",
        envvar=["AGENTSDOCK_AGENT_TOKEN", "ZENITHBOT_AGENT_TOKEN", "ZENITHDOCK_AGENT_TOKEN"],
        help="The server's token.  Other users can see arguments: prefer the variable.",
    )
    @functools.wraps(command)
    def wrapper(url: str | None, token: str | None, state_dir: pathlib.Path, **options: Any) -> Any:
        return command(connection=Connection(url, token, state_dir.expanduser()), **options)

    return wrapper


class Connection:
    """An address and a token: given, or those of the server of this state directory."""

    def __init__(self, url: str | None, token: str | None, state_dir: pathlib.Path) -> None:
        self.url = url or written_url(state_dir) or DEFAULT_URL
        self.token = token
        if token is None and (url is None or is_loopback(url)):
            # A stored token is for the server beside it and goes nowhere else.
            self.token = stored_token(state_dir)

    def run(self, job: "Callable[[Client], Awaitable[T]]") -> T:
        """Run ``job`` with a client.  An ApiError ends the command with status 1."""
        import trio

        with without_httpx_command():
            from agentsdock.client.errors import ApiError
            from agentsdock.client.http import Client

        async def session() -> T:
            async with Client(self.url, self.token) as client:
                return await job(client)

        failure: Exception | None = None
        try:
            return trio.run(session)
        except* ApiError as group:
            failure = click.ClickException(str(_first(group)))
        except* KeyboardInterrupt:
            failure = click.exceptions.Exit(130)
        except* BrokenPipeError as group:
            failure = _first(group)  # click ends the command quietly
        raise failure


@contextlib.contextmanager
def without_httpx_command() -> Iterator[None]:
    """httpx imports a command line of its own where it can: a third of a client's start."""
    name = "httpx._main"
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    try:
        yield
    finally:
        if sys.modules.get(name) is None:
            sys.modules.pop(name, None)


def _first(group: BaseExceptionGroup[Any]) -> Exception:
    first: Any = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    found: Exception = first
    return found


def is_loopback(url: str) -> bool:
    try:
        return urllib.parse.urlsplit(url).hostname in LOOPBACK
    except ValueError:
        return False


def written_url(state_dir: pathlib.Path) -> str | None:
    """The address that a living server wrote down."""
    try:
        written = json.loads((state_dir / "server.json").read_text(encoding="utf-8"))
        os.kill(int(written["pid"]), 0)
        return str(written["url"])
    except PermissionError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def stored_token(state_dir: pathlib.Path) -> str | None:
    try:
        return (state_dir / "token").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
