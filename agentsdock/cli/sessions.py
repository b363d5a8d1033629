"""``agentsdock sessions``: the list of chats."""

import json

import click

from agentsdock.cli.connection import Connection, connected
from agentsdock.cli.timeline import one_line


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of summaries.")
@connected
def sessions(connection: Connection, as_json: bool) -> None:
    """List the chats."""
    found = connection.run(lambda client: client.sessions())
    if as_json:
        click.echo(json.dumps(found))
        return
    if not found:
        click.echo("There is no chat yet.")
    for row in found:
        marks = "".join(
            mark
            for mark, name in (("*", "pinned"), ("-", "archived"), ("!", "manual_unread"))
            if row.get(name)
        )
        title = one_line(str(row.get("title") or ""), 48)
        click.echo(
            f"{row['id']}  {row.get('backend') or '':<7} {row.get('updated_at') or '':<20} "
            f"{marks:<2} {title}"
        )
