"""Removes an installation; the server's state only if told so.  Started by ``uninstall.sh``.

Nothing is removed that is not known to be ours: a prefix has our mark, a state folder our lock
and database, and of the prefix only what an installer makes goes.
"""

import argparse
import contextlib
import os
import pathlib
import sys

from prefix import DATABASE, MARK, STATE_LOCK, InstallError, Prefix, State, in_words, remove, say
from service import choose

RUN_MARKER = "AGENTSDOCK_RUN_MARKER"
OURS = (
    "current",
    "previous",
    "releases",
    "environments",
    "bin",
    "server.log",
    "trial.pid",
    "activation.json",
    "release-key.pem",
    "settings.env",
    "install.lock",
    MARK,
)
"""In this order: what is left after an interruption still has the mark."""


def main() -> None:
    home = pathlib.Path.home()
    parser = argparse.ArgumentParser(prog="uninstall.sh", description="Remove agentsdock.")
    parser.add_argument("--prefix", type=pathlib.Path, default=home / ".local/share/agentsdock")
    parser.add_argument(
        "--purge-state", action="store_true", help="chats, files, token and all: for good"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed")
    options = parser.parse_args()
    try:
        prefix = Prefix(options.prefix.expanduser().absolute())
        uninstall(prefix, purge=options.purge_state, dry=options.dry_run)
    except InstallError as error:
        sys.exit(f"agentsdock: {error}")
    except OSError as error:
        sys.exit(f"agentsdock: {in_words(error)}")


def uninstall(prefix: Prefix, *, purge: bool, dry: bool) -> None:
    """Raises InstallError and OSError."""
    if RUN_MARKER in os.environ:
        raise InstallError("this is a turn of an agent: run it from a shell of your own")
    prefix.refuse_foreign()
    if not (prefix.root / MARK).exists():
        raise InstallError(f"there is no installation in {prefix.root}")
    settings = prefix.settings()
    state = State(pathlib.Path(settings.get("AGENTSDOCK_STATE_DIR", "~/.agentsdock")).expanduser())
    if purge:
        refuse_foreign_state(state.root)
    say(f"removes {prefix.root}; {'removes' if purge else 'keeps'} {state.root}")
    if dry:
        return
    with prefix.locked():
        service = choose(prefix, managed=True)
        if service.is_ours():
            service.preflight()
            service.stop()
            service.remove()
        if pid := state.user():
            raise InstallError(f"process {pid} still serves {state.root}: stop it first")
        link = pathlib.Path.home() / ".local/bin/agentsdock"
        if link.is_symlink() and os.readlink(link) == str(prefix.command):
            link.unlink()
        if purge:
            remove(state.root)
        for name in OURS:
            remove(prefix.root / name)
    with contextlib.suppress(OSError):
        prefix.root.rmdir()


def refuse_foreign_state(root: pathlib.Path) -> None:
    """Raises InstallError unless a folder is a server's state and nothing above it."""
    home = pathlib.Path.home()
    if root.is_symlink() or not root.is_absolute() or root == home or root in home.parents:
        raise InstallError(f"{root} is not removed: it is no folder of its own")
    if not root.exists():
        return
    if not (root / STATE_LOCK).is_file() or not (root / DATABASE).is_file():
        raise InstallError(f"{root} is not removed: it is no server's state")
    if root.stat().st_uid != os.geteuid():
        raise InstallError(f"{root} is not removed: it is not yours")


if __name__ == "__main__":
    main()
