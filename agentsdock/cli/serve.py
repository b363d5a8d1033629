"""``agentsdock serve``: the server in the foreground."""

import os
import pathlib
import sys

import click

STATUS_TOO_NEW = 3
"""Of its own, so that a service manager does not try again for ever."""


@click.command()
@click.option("--bind", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port, 0 for any.  [default: 7850]")
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    help="Where everything is kept.  [default: ~/.agentsdock]",
)
def serve(bind: str | None, port: int | None, state_dir: pathlib.Path | None) -> None:
    """Run the server until SIGTERM or ctrl-C.

    Settings come from AGENTSDOCK_ variables; these options overrule them.
    """
    from agentsdock import app, config
    from agentsdock.guard.contract import SpawnFailed
    from agentsdock.store.protocol import StoreError, StoreTooNew

    _open_standard_streams()
    try:
        app.main(config.load(bind=bind, port=port, state_dir=state_dir))
    except config.SettingError as error:
        click.echo(f"agentsdock: {error}", err=True)
        sys.exit(2)
    except StoreTooNew as error:
        click.echo(f"agentsdock: cannot start: {error}", err=True)
        sys.exit(STATUS_TOO_NEW)
    except (StoreError, SpawnFailed) as error:
        click.echo(f"agentsdock: cannot start: {error}", err=True)
        sys.exit(1)


def _open_standard_streams() -> None:
    """Put ``/dev/null`` where the starter closed one: the next file would get its number, and
    what is written to stderr."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")
