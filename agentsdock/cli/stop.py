"""``agentsdock stop``: end what runs in a chat."""

import json

import click

from agentsdock.cli.connection import Connection, connected

OUTCOMES = {
    "stopped": "stopped",
    "finished": "it had finished on its own before",
    "idle": "nothing was running",
}

TREES = {True: "none left, proven", False: "SOME ARE LEFT", None: "not known"}


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as one JSON object.")
@connected
def stop(connection: Connection, session_id: str, as_json: bool) -> None:
    """Stop the turn that runs in SESSION and print the receipt."""
    import attrs

    receipt = connection.run(lambda client: client.stop(session_id))
    if as_json:
        click.echo(json.dumps(attrs.asdict(receipt)))
        return
    click.echo(OUTCOMES.get(receipt.outcome, receipt.outcome))
    if receipt.pending:
        click.echo("  but it is not over yet: the server goes on with it")
    if receipt.run_id is None:
        return
    click.echo(f"  run        {receipt.run_id}, terminal event {receipt.terminal_seq}")
    ended = f"{receipt.processes_ended} ended ({receipt.rung})"
    click.echo(f"  processes  {TREES[receipt.tree_empty]}; {ended}")
    if receipt.elapsed_ms is not None:
        click.echo(f"  took       {receipt.elapsed_ms:.0f} ms")
