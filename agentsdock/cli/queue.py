"""``agentsdock queue``: the messages that wait in a chat."""

import json
import sys
from typing import Any

import click

from agentsdock.cli.connection import Connection, connected
from agentsdock.cli.timeline import one_line


def _row(command: Any) -> Any:
    """The arguments that name a waiting message."""
    command = click.argument("queued_id", metavar="ROW")(command)
    return click.argument("session_id", metavar="SESSION")(command)


@click.group()
def queue() -> None:
    """The messages that wait in a chat: list, edit, delete or move them, run one now.

    SESSION is a chat, ROW a waiting message; `list` shows the rows.
    """


@queue.command(name="list")
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of rows.")
@connected
def list_rows(connection: Connection, session_id: str, as_json: bool) -> None:
    """List what waits in SESSION, in the order in which it will run."""
    rows = connection.run(lambda client: client.queue(session_id))
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        click.echo("Nothing waits in this chat.")
    for row in rows:
        mark = "paused" if row.get("paused") else "next" if row.get("promoted") else ""
        text = one_line(str(row.get("prompt") or ""), 60)
        click.echo(f"{row['position']:>3}  {row['queued_id']}  {mark:<6} {text}".rstrip())


@queue.command()
@_row
@click.argument("prompt")
@connected
def edit(connection: Connection, session_id: str, queued_id: str, prompt: str) -> None:
    """Replace the text of ROW by PROMPT (- reads it from stdin)."""
    if prompt == "-":
        prompt = sys.stdin.read()
    item = connection.run(lambda client: client.edit_queued(session_id, queued_id, prompt=prompt))
    click.echo(f"{queued_id} will run as: {one_line(str(item.get('prompt') or ''), 60)}")


@queue.command()
@_row
@connected
def delete(connection: Connection, session_id: str, queued_id: str) -> None:
    """Take ROW out of the queue."""
    remaining = connection.run(lambda client: client.delete_queued(session_id, queued_id))
    click.echo(f"{queued_id} is deleted; {remaining} still in the queue")


@queue.command()
@_row
@click.argument("direction", type=click.Choice(["up", "down"]))
@connected
def move(connection: Connection, session_id: str, queued_id: str, direction: str) -> None:
    """Let ROW change places with the one before (up) or behind it (down)."""
    places = connection.run(lambda client: client.move_queued(session_id, queued_id, direction))
    for place in places:
        mark = "  <-" if place["queued_id"] == queued_id else ""
        click.echo(f"{place['position']:>3}  {place['queued_id']}{mark}")


@queue.command(name="run-now")
@_row
@connected
def run_now(connection: Connection, session_id: str, queued_id: str) -> None:
    """Run ROW next, in place of the turn that runs in SESSION."""
    reply = connection.run(lambda client: client.run_queued_now(session_id, queued_id))
    ended = "; the turn that ran is stopped" if reply["interrupted"] else ""
    click.echo(f"{queued_id} runs next{ended}")
