"""The ``agentsdock`` command.  A subcommand's module is imported when it is named."""

import importlib
import io
import sys
from typing import Any

import click

import agentsdock

COMMANDS = {
    "serve": "agentsdock.cli.serve:serve",
    "demo": "agentsdock.cli.demo:demo",
    "doctor": "agentsdock.cli.doctor:doctor",
    "turn": "agentsdock.cli.turn:turn",
    "stop": "agentsdock.cli.stop:stop",
    "queue": "agentsdock.cli.queue:queue",
    "files": "agentsdock.cli.files:files",
    "sessions": "agentsdock.cli.sessions:sessions",
    "search": "agentsdock.cli.search:search",
    "replay": "agentsdock.cli.replay:replay",
    "rejudge": "agentsdock.cli.rejudge:rejudge",
    "export-fixture": "agentsdock.cli.export_fixture:export_fixture",
    "conformance": "agentsdock.cli.conformance:conformance",
    "backup": "agentsdock.cli.backup:backup",
    "restore": "agentsdock.cli.backup:restore",
    "verify": "agentsdock.cli.backup:verify",
    "token": "agentsdock.cli.token:token",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        found: Any = getattr(importlib.import_module(module), name)
        command: click.Command = found
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(agentsdock.__version__, prog_name="agentsdock")
def main() -> None:
    """Run coding-agent CLIs as supervised chat turns."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may know fewer characters than we
        sys.stdout.reconfigure(errors="backslashreplace")
