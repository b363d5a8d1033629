"""``agentsdock token``: the secret that clients present."""

import os
import pathlib

import click

from agentsdock.cli.connection import state_dir_option, stored_token

VARIABLES = ("AGENTSDOCK_AGENT_TOKEN", "ZENITHBOT_AGENT_TOKEN", "ZENITHDOCK_AGENT_TOKEN")


@click.group()
def token() -> None:
    """The token that clients present to the server."""


@token.command()
@state_dir_option
def show(state_dir: pathlib.Path) -> None:
    """Print the token: that of the environment, else the stored one."""
    given = (os.environ.get(name, "").strip() for name in VARIABLES)
    found = next(filter(None, given), None) or stored_token(state_dir.expanduser())
    if found is None:
        raise click.ClickException(
            f"no token: {VARIABLES[0]} is not set and {state_dir}/token does not exist or is "
            "not readable.  Without a token the server only serves this machine."
        )
    click.echo(found)
