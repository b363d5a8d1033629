"""``agentsdock backup``, ``restore`` and ``verify``: the state folder, kept safe."""

import contextlib
import pathlib
import sys
from collections.abc import Iterator

import click

from agentsdock.cli.connection import state_dir_option
from agentsdock.cli.serve import STATUS_TOO_NEW

a_path = click.Path(path_type=pathlib.Path)


@click.command()
@click.argument("folder", type=a_path)
@state_dir_option
def backup(folder: pathlib.Path, state_dir: pathlib.Path) -> None:
    """Write the state to a new FOLDER: the database, the files of the chats, a manifest.

    A server may run meanwhile.  The token and the recordings of runs are left out.
    """
    from agentsdock import backups

    with told():
        manifest = backups.back_up(state_dir.expanduser(), folder)
    size = sum(content.size for content in manifest.files.values())
    click.echo(f"{folder}: {len(manifest.files)} files, {size:,} bytes")
    for file_id in manifest.absent:
        click.echo(f"{file_id} is on record but not on the disk", err=True)


@click.command()
@click.argument("source", type=a_path)
@state_dir_option
def restore(source: pathlib.Path, state_dir: pathlib.Path) -> None:
    """Put the state back to SOURCE: a backup, or a snapshot that an update has made.

    The server must not run.  What is replaced is kept in the state folder.
    """
    from agentsdock import backups

    with told():
        replaced = backups.restore(source, state_dir.expanduser())
    click.echo(f"restored {source} to {state_dir}")
    if replaced.kept:
        click.echo(f"what was there before is in {replaced.kept}; remove it once it is not needed")


@click.command()
@click.argument("path", type=a_path, required=False)
@state_dir_option
def verify(path: pathlib.Path | None, state_dir: pathlib.Path) -> None:
    """Check a backup, a snapshot, or without PATH the state folder itself.

    The status is 1 if something is wrong and 3 if a newer release wrote it.
    """
    from agentsdock import backups

    place = path or state_dir.expanduser()
    with told():
        problems = backups.problems_of(place)
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        sys.exit(1)
    click.echo(f"{place} is whole")


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Errors as a line and a status."""
    from agentsdock.backups import BackupError
    from agentsdock.store.protocol import StoreError, StoreTooNew

    try:
        yield
    except StoreTooNew as error:
        click.echo(f"agentsdock: {error}", err=True)
        sys.exit(STATUS_TOO_NEW)
    except (BackupError, StoreError) as error:
        raise click.ClickException(str(error)) from error
