"""``agentsdock files``: the files of a chat, sent and fetched."""

import contextlib
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from agentsdock.cli.connection import Connection, connected


@click.group()
def files() -> None:
    """The files of a chat: list, upload and get them.

    SESSION is a chat.
    """


@files.command(name="list")
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of files.")
@connected
def list_files(connection: Connection, session_id: str, as_json: bool) -> None:
    """List the files of SESSION, the newest first."""
    found = connection.run(lambda client: client.files(session_id))
    if as_json:
        click.echo(json.dumps(found))
        return
    if not found:
        click.echo("This chat has no files.")
    for file in found:
        size = _size(file["size"])
        click.echo(f"{file['id']}  {file['kind']:<8}  {size:>10}  {file['filename']}")


@files.command()
@click.argument("session_id", metavar="SESSION")
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
)
@connected
def upload(connection: Connection, session_id: str, paths: tuple[pathlib.Path, ...]) -> None:
    """Send files to SESSION; prints the id of each."""
    for path in paths:
        record = _send(connection, session_id, path)
        click.echo(f"{record['id']}  {record['filename']}")


def _send(connection: Connection, session_id: str, path: pathlib.Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file, _progress(path.name, path.stat().st_size) as told:
            return connection.run(
                lambda client: client.upload(session_id, file, path.name, progress=told)
            )
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error


@files.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("file", metavar="FILE")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=pathlib.Path),
    help="Where to; a folder keeps the name.  [default: here]",
)
@click.option("--force", is_flag=True, help="Overwrite what is there.")
@connected
def get(
    connection: Connection, session_id: str, file: str, output: pathlib.Path | None, force: bool
) -> None:
    """Fetch FILE, an id or a name, of SESSION.

    A download that broke off goes on where it broke when it is asked for again.
    """
    record = _find(connection.run(lambda client: client.files(session_id)), file)
    target = output or pathlib.Path()
    if target.is_dir():
        target /= pathlib.PurePath(record["filename"]).name
    _fetch(connection, record, target, force)
    click.echo(str(target))


def _find(files: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """By id, else the newest of that name."""
    for key in ("id", "filename"):
        for file in files:
            if file[key] == wanted:
                return file
    raise click.ClickException(f"this chat has no file {wanted}")


def _fetch(
    connection: Connection, record: dict[str, Any], target: pathlib.Path, force: bool
) -> None:
    try:
        with _progress(target.name, record["size"]) as told:
            connection.run(
                lambda client: client.download(
                    record["session_id"], record["id"], target, overwrite=force, progress=told
                )
            )
    except FileExistsError as error:
        raise click.ClickException(f"{target} is there already; --force overwrites it") from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or target}: {error.strerror}") from error


@contextlib.contextmanager
def _progress(label: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if somebody looks at it."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield bar.update


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
