"""``agentsdock conformance``: whether a server or a client keeps the promises about events."""

import json
import pathlib
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from agentsdock.cli.connection import Connection, connected, without_httpx_command

if TYPE_CHECKING:
    from agentsdock.testing.conformance.checker import Violation
    from agentsdock.testing.conformance.proxy import FaultProxy
    from agentsdock.testing.conformance.scenarios import Result


@click.group()
def conformance() -> None:
    """Check a server, or a client, of this API: every event once and in order, one ending a run."""


@conformance.command()
@connected
@click.option("--backend", default="cursor", show_default=True, help="Of the chats that it makes.")
@click.option(
    "--prompt",
    default="Reply with the single word: ok",
    show_default=True,
    help="Of a turn that ends by itself.",
)
@click.option("--long-prompt", help="Of a turn that goes on until it is stopped.")
@click.option("--flood-prompt", help="Of a turn that says some megabytes, for a slow reader.")
@click.option("--restart", help="Command that restarts the server and returns once it is gone.")
def server(
    connection: Connection,
    backend: str,
    prompt: str,
    long_prompt: str | None,
    flood_prompt: str | None,
    restart: str | None,
) -> None:
    """Ask a running server to prove it.  Makes chats, runs turns in them, deletes them.

    The status is 0 if nothing was broken.
    """
    import trio

    with without_httpx_command():
        from agentsdock.testing.conformance.scenarios import Server, run_scenarios

    async def restarting() -> None:
        await trio.run_process(shlex.split(restart or ""))
        await _answers(connection.url)

    asked = Server(
        url=connection.url,
        token=connection.token,
        backend=backend,
        turn={"prompt": prompt},
        long_turn={"prompt": long_prompt} if long_prompt else None,
        flood={"prompt": flood_prompt} if flood_prompt else None,
        restart=restarting if restart else None,
    )
    results = trio.run(lambda: run_scenarios(asked, told=_show))
    raise click.exceptions.Exit(0 if all(result.passed for result in results) else 1)


@conformance.command()
@click.option("--url", required=True, help="The server's address.")
@click.option("--port", default=0, help="Where to listen on the loopback; 0 is any free port.")
@click.option("--cut-every", type=click.IntRange(1), help="Cut a socket after so many events.")
@click.option("--inside", is_flag=True, help="Cut it in the middle of the next one.")
@click.option("--abort", is_flag=True, help="Cut it by a reset.")
@click.option("--delay", default=0.0, help="Seconds before each event.")
@click.option("--stall-after", type=click.IntRange(0), help="Hand on so many, then nothing.")
@click.option("--stall-seconds", default=60.0, show_default=True, help="Then cut.")
def proxy(url: str, port: int, **faults: Any) -> None:
    """Stand between a client and a server and break their event sockets, until interrupted.

    Then says whether each connection asked for what the client did not have yet; the status is
    0 if it did.
    """
    import trio

    from agentsdock.testing.conformance.proxy import Faults, open_proxy

    running: list[FaultProxy] = []

    async def run() -> None:
        async with open_proxy(url, Faults(**faults), port=port) as opened:
            running.append(opened)
            click.echo(opened.url)
            await trio.sleep_forever()

    try:
        trio.run(run)
    except* KeyboardInterrupt:
        pass
    click.echo(f"{len(running[0].passages)} event sockets")
    _leave(running[0].check_cursors())


@conformance.command()
@connected
@click.option("--chat", required=True, help="The chat that the client followed.")
@click.option("--after", default=0, help="The cursor that it began with.")
@click.argument("seen", type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path))
def check(connection: Connection, chat: str, after: int, seen: pathlib.Path) -> None:
    """Compare what a client has SEEN, a file with an event as JSON on each line, with the server.

    The status is 0 if it is the same events, once and in order.
    """
    from agentsdock.testing.conformance.checker import check_seen

    async def pages(client: Any) -> list[dict[str, Any]]:
        truth: list[dict[str, Any]] = []
        while True:
            last = truth[-1]["seq"] if truth else 0
            page = await client.session(chat, after=last, limit=500, tail=False)
            if not page["events"]:
                return truth
            truth += page["events"]

    _leave(check_seen(_events(seen), connection.run(pages), after))


def _events(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
            except ValueError as error:
                raise click.ClickException(f"{path}, line {number}: {error}") from error
            if not isinstance(event, dict):
                raise click.ClickException(f"{path}, line {number}: not an event")
            yield event


async def _answers(url: str) -> None:
    """Until the server answers again, for at most a minute."""
    import httpx
    import trio

    with trio.fail_after(60):
        async with httpx.AsyncClient(trust_env=False) as http:
            while True:
                try:
                    if (await http.get(f"{url}/healthz")).is_success:
                        return
                except httpx.TransportError:
                    pass
                await trio.sleep(0.1)


def _show(result: "Result") -> None:
    word = "skip" if result.skipped else "ok" if result.passed else "FAIL"
    why = f": {result.skipped}" if result.skipped else ""
    click.echo(f"{word:<5} {result.name}{why}")
    for violation in result.violations:
        click.echo(f"      {violation}")


def _leave(violations: "list[Violation]") -> None:
    for violation in violations:
        click.echo(str(violation))
    click.echo("nothing was broken" if not violations else f"{len(violations)} broken")
    raise click.exceptions.Exit(1 if violations else 0)
