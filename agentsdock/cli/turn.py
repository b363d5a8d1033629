"""``agentsdock turn``: send a prompt and follow it to its end."""

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click

from agentsdock.cli.connection import Connection, connected

if TYPE_CHECKING:
    from agentsdock.client.http import Client

_NOT_TAKEN = (400, 413, 422, 503)
"""Statuses of a message of which nothing was stored: its new chat would stay empty."""


@click.command()
@click.argument("prompt")
@click.option("--session", "session_id", metavar="ID", help="The chat to send it to.")
@click.option("--new", is_flag=True, help="Send it to a new chat (the default without --session).")
@click.option("--backend", type=click.Choice(["claude", "codex", "cursor"]))
@click.option("--model", help="Model of this and later turns of the chat.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Folder of a new chat.  [default: the current one]",
)
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")
@connected
def turn(connection: Connection, session_id: str | None, new: bool, **options: Any) -> None:
    """Send PROMPT (- reads it from stdin) and follow the turn live.

    Ctrl-C stops the turn and waits for its end; once more leaves at once.  The exit status is 0
    after a success, 1 after a failure, 130 after a stop.
    """
    if session_id is not None and (new or options["cwd"]):
        raise click.UsageError("--session names a chat that exists; --new and --cwd make one.")
    if options["prompt"] == "-":
        options["prompt"] = sys.stdin.read()

    async def job(client: "Client") -> int:
        from agentsdock.cli.follow import Printer, send_and_follow
        from agentsdock.client.errors import ApiError

        chat = session_id or await new_chat(client, options["cwd"], options["backend"])
        fields = {key: options[key] for key in ("backend", "model") if options[key]}
        with Printer(as_json=options["as_json"]) as printer:
            if session_id is None:
                printer.note(f"chat {chat}")
            try:
                return await send_and_follow(client, chat, options["prompt"], fields, printer)
            except* ApiError as group:
                error = group.exceptions[0]
                refused = isinstance(error, ApiError) and error.status in _NOT_TAKEN
                if session_id is None and refused:
                    with contextlib.suppress(ApiError):
                        await client.delete_session(chat)
                raise

    sys.exit(connection.run(job))


async def new_chat(client: "Client", cwd: str | None, backend: str | None) -> str:
    import pathlib

    fields = {"cwd": cwd or str(pathlib.Path.cwd())}
    if backend:
        fields["backend"] = backend
    session = await client.create_session(**fields)
    return str(session["id"])
