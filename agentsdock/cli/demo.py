"""``agentsdock demo``: a server of its own, one turn shown as it happens."""

import os
import pathlib
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import click

from agentsdock.cli.connection import Connection

if TYPE_CHECKING:
    from agentsdock.client.http import Client

FIRST_PORT, LAST_PORT = 7850, 7899
PROMPT = "List the files of this folder and say in one sentence what you see."
README = "This folder was made by `agentsdock demo`.\n"


@click.command()
@click.option("--once", is_flag=True, envvar="ONCE", help="Stop the server after the turn.")
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    default=".demo",
    show_default=True,
    help="Where the demo server keeps everything.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="[default: the first free from 7850]")
def demo(once: bool, state_dir: pathlib.Path, port: int | None) -> None:
    """Start a server, run one turn and show it.

    A compatible, signed-in Cursor CLI is used if there is one, else a player that stands in for
    it.  The server then stays up until ctrl-C; with --once it stops, and the status is that of
    the turn.
    """
    from agentsdock.testing.server import ServerNotReady, running_server

    state = state_dir.absolute()
    workspace = state / "workspace"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    workspace.mkdir(exist_ok=True)
    (workspace / "README.md").write_text(README)
    environ = {
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(workspace),
        "CURSOR_BIN": cursor_cli(state),
    }
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    try:
        with running_server(state, environ, port=free_port() if port is None else port) as server:
            status = show_turn(Connection(server.url, None, state), workspace)
            if not once:
                click.echo(f"\nThe server stays up at {server.url} until ctrl-C.")
                server.process.wait()
    except ServerNotReady as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        status = 0
    sys.exit(status)


def leave(number: int, frame: Any) -> None:
    """A signal that ends the demo must end its server too."""
    raise SystemExit(128 + number)


def cursor_cli(state: pathlib.Path) -> str:
    """The real program where a turn could run on it, else a player."""
    import trio

    from agentsdock import config
    from agentsdock.cli.doctor import examine
    from agentsdock.testing.player import install_player

    findings = trio.run(examine, config.load({**os.environ, "AGENTSDOCK_STATE_DIR": str(state)}))
    for finding in findings:
        found = finding.diagnostic
        if found.backend == "cursor" and found.ready and found.program is not None:
            click.echo(f"The Cursor CLI of this machine runs the turn: {found.program.path}")
            return found.program.path
    click.echo("No usable Cursor CLI here (agentsdock doctor says why): a player stands in for it.")
    return str(install_player(state / "player"))


def free_port() -> int:
    for port in range(FIRST_PORT, LAST_PORT + 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise click.ClickException(f"no free port from {FIRST_PORT} to {LAST_PORT}; use --port")


def show_turn(connection: Connection, workspace: pathlib.Path) -> int:
    async def job(client: "Client") -> int:
        from agentsdock.cli.follow import Printer, send_and_follow

        session = await client.create_session(title="Demo", backend="cursor", cwd=str(workspace))
        with Printer() as printer:
            return await send_and_follow(client, session["id"], PROMPT, {}, printer)

    click.echo(f"The server runs at {connection.url}; the prompt is: {PROMPT}\n")
    return connection.run(job)
