"""``agentsdock search``: what was said, by its words."""

import json

import click

from agentsdock.cli.connection import Connection, connected
from agentsdock.cli.timeline import one_line

SNIPPET_CHARS = 120


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--session", "session_id", metavar="SESSION", help="Search this chat only.")
@click.option("--limit", type=click.IntRange(1, 100), default=40, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the server's answer.")
@connected
def search(
    connection: Connection,
    words: tuple[str, ...],
    session_id: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find WORDS in all chats that are not archived, or in one chat.

    All of them must be there, each by its beginning; "quoted text" as it is.
    """
    query = " ".join(words)
    found = connection.run(lambda client: client.search(query, session_id=session_id, limit=limit))
    if as_json:
        click.echo(json.dumps(found))
        return
    for hit in found["results"]:
        more = hit.get("match_count", 1) - 1
        tail = f"  (+{more})" if more else ""
        click.echo(
            f"{hit['session_id']}  {hit['seq']:>6}  {hit['role']:<9} "
            f"{one_line(str(hit['snippet']), SNIPPET_CHARS)}{tail}"
        )
    if not found["results"]:
        click.echo("Nothing found.")
    if not found.get("complete", True):
        click.echo("The index is being built; there may be more.", err=True)
