"""``agentsdock export-fixture``: a recorded run that may be shown to others."""

import os
import pathlib
import re

import click

from agentsdock.cli.connection import state_dir_option
from agentsdock.cli.replay import find


@click.command("export-fixture")
@click.argument("run", metavar="RUN|FILE")
@click.option(
    "--out",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    default=pathlib.Path("."),
    help="The folder to write to.  [default: this one]",
)
@click.option("--name", metavar="NAME", help="Name of the two files.  [default: the run's id]")
@click.option(
    "--private",
    "private",
    metavar="TEXT",
    multiple=True,
    help="A text to be replaced too, a customer's name say; may be given again.",
)
@state_dir_option
def export_fixture(
    run: str,
    out: pathlib.Path,
    name: str | None,
    private: tuple[str, ...],
    state_dir: pathlib.Path,
) -> None:
    """Write the recording of RUN as a fixture, scrubbed.

    Paths, names of people, accounts and hosts, addresses, secrets and ids are replaced, each by
    the same stand-in everywhere.  The result is searched for what was replaced, in other
    spellings too, and nothing is written if any of it is still there.  It must be judged as the
    run was.  Read it all the same before you show it to anybody.
    """
    from agentsdock.testing.fixture import FixtureError, make_fixture, of_this_host, write_fixture
    from agentsdock.turns.capsule import CapsuleError

    state_dir = state_dir.expanduser()
    path = find(run, state_dir)
    name = name or path.name.partition(".")[0]
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise click.UsageError(f"{name!r} is no name for a file: use letters, digits, . _ and -")
    given = {text: f"private-{number}" for number, text in enumerate(private, start=1)}
    try:
        fixture = make_fixture(path, {**of_this_host(os.environ, state_dir), **given})
        written = write_fixture(fixture, out, name)
    except (OSError, CapsuleError) as error:
        raise click.UsageError(f"{run} cannot be exported: {error}") from error
    except FixtureError as error:
        raise click.ClickException(f"{run}: {error}") from error
    expected = fixture.facts["expected"]
    verdict = expected["state"] + (f", {expected['code']}" if expected["code"] else "")
    click.echo(f"{written}: {verdict}; {fixture.replaced} texts replaced, none left")
