"""The installation's folder: releases side by side, one ``current`` link, settings, a lock."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

MARK = ".agentsdock"
"""Says that a folder is an installation of ours and may be changed and removed."""
DEFAULT_PORT = 7850
STATE_LOCK = "agentsdock.lock"
DATABASE = "agentsdock.db"
_SCHEMA_AT = 60
_SETTINGS_HEAD = """\
# Settings of agentsdock: shell syntax, one NAME='value' a line.  Updates keep this file.
# PATH is where the service looks for agent CLIs.
"""


class InstallError(Exception):
    """The installation stopped.  The message says why, what state it left, and what to do."""


def say(line: str) -> None:
    """Progress.  Nobody listening is no reason to stop half-way."""
    try:
        print(line, flush=True)
    except OSError:
        # Else the interpreter complains of it once more at its end.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


@dataclass(frozen=True)
class Installed:
    """A release in place: what its ``release.json`` says."""

    id: str
    version: str
    schema: int
    """The newest version of the database's schema that it can read."""
    environment: str

    def write(self, folder: pathlib.Path) -> None:
        (folder / "release.json").write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Prefix:
    root: pathlib.Path

    @property
    def settings_file(self) -> pathlib.Path:
        return self.root / "settings.env"

    @property
    def command(self) -> pathlib.Path:
        return self.root / "bin/agentsdock"

    @property
    def key_file(self) -> pathlib.Path:
        return self.root / "release-key.pem"

    @property
    def trial_file(self) -> pathlib.Path:
        """The process of a server that was started for a check alone."""
        return self.root / "trial.pid"

    @property
    def log_file(self) -> pathlib.Path:
        """Where the service writes if its manager keeps no log."""
        return self.root / "server.log"

    def release_dir(self, release_id: str) -> pathlib.Path:
        return self.root / "releases" / release_id

    def environment_dir(self, key: str) -> pathlib.Path:
        return self.root / "environments" / key

    def prepare(self) -> None:
        """Make the folder, or take it up again.  Raises InstallError for a foreign one."""
        self.refuse_foreign()
        for folder in (self.root, *(self.root / n for n in ("bin", "releases", "environments"))):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.root / MARK).touch()

    def refuse_foreign(self) -> None:
        root = self.root
        text = str(root)
        if not text.isprintable():
            raise InstallError(f"{text!r} holds a character that no service can be started with")
        if root in (pathlib.Path("/"), pathlib.Path.home()):
            raise InstallError(f"{root} cannot be the prefix: name a folder of its own")
        if not os.path.lexists(root):
            return
        if root.is_symlink() or not root.is_dir() or root.stat().st_uid != os.geteuid():
            raise InstallError(f"{root} is not a folder of yours")
        if any(root.iterdir()) and not (root / MARK).exists():
            raise InstallError(f"{root} holds something else: name an empty folder by --prefix")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One installer at a time; the kernel lets go of it however its holder ends."""
        with open(self.root / "install.lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InstallError(f"another installer is at work in {self.root}") from None
            yield

    def release(self, name: str) -> Installed | None:
        """The release that the link ``name`` leads to."""
        try:
            target = os.readlink(self.root / name)
            return self.installed(pathlib.PurePath(target).name)
        except OSError:
            return None

    def installed(self, release_id: str) -> Installed | None:
        try:
            known = json.loads((self.release_dir(release_id) / "release.json").read_text())
            return Installed(**known)
        except (OSError, ValueError, TypeError):
            return None

    def link(self, name: str, release_id: str | None) -> None:
        """Let a link lead to another release, in one step, or remove it."""
        path, scratch = self.root / name, self.root / f".{name}.new"
        if release_id is None:
            path.unlink(missing_ok=True)
            return
        if path.is_symlink() and os.readlink(path) == f"releases/{release_id}":
            return
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(f"releases/{release_id}")
        scratch.replace(path)

    def write_command(self) -> None:
        """The program that people and the service start: whatever is current, with our settings."""
        text = f"""\
#!/bin/sh
# Resolved first: a running server stays with the release that it began with.
release=$(cd -P {shlex.quote(str(self.root / "current"))} && pwd -P) || exit 1
set -a
. {shlex.quote(str(self.settings_file))} || exit 1
set +a
exec "$release/venv/bin/agentsdock" "$@"
"""
        write_file(self.command, text, 0o755)

    def settings_text(self) -> str:
        try:
            return self.settings_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def settings(self) -> dict[str, str]:
        """Raises InstallError for a line that cannot be read."""
        found = {}
        for number, line in enumerate(self.settings_text().splitlines(), 1):
            try:
                words = shlex.split(line, comments=True)
            except ValueError as error:
                raise InstallError(f"{self.settings_file}, line {number}: {error}") from None
            for word in words:
                name, equals, value = word.partition("=")
                if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                    found[name] = value
        return found

    def change_settings(self, wanted: Mapping[str, str]) -> None:
        """Set these; every other line stays as the operator wrote it."""
        lines = (self.settings_text() or _SETTINGS_HEAD).splitlines()
        kept = [line for line in lines if line.partition("=")[0].strip() not in wanted]
        added = [f"{name}={shlex.quote(value)}" for name, value in wanted.items()]
        write_file(self.settings_file, "\n".join([*kept, *added]) + "\n", 0o600)

    def begin(self, change: Mapping[str, Any]) -> None:
        """Note an activation, so that the next run knows of one that was cut off."""
        write_file(self.root / "activation.json", json.dumps(change), 0o600)

    def begun(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.root / "activation.json").read_text())
            return found
        except (OSError, ValueError):
            return None

    def done(self) -> None:
        (self.root / "activation.json").unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what neither the current nor the previous release uses."""
        kept = [r for r in (self.release("current"), self.release("previous")) if r]
        wanted = {"releases": {r.id for r in kept}, "environments": {r.environment for r in kept}}
        for folder, names in wanted.items():
            for path in (self.root / folder).iterdir():
                if path.name not in names:
                    remove(path)


@dataclass(frozen=True)
class State:
    """The server's state folder, as far as an installer has to do with it."""

    root: pathlib.Path

    def refuse_unusable(self) -> None:
        """Raises InstallError."""
        root = self.root
        if not str(root).isprintable() or root in (pathlib.Path("/"), pathlib.Path.home()):
            raise InstallError(f"{str(root)!r} cannot be the state folder: name one of its own")
        if os.path.lexists(root) and (not root.is_dir() or root.stat().st_uid != os.geteuid()):
            raise InstallError(f"{root} is not a folder of yours")

    def token(self, settings: Mapping[str, str]) -> str | None:
        given = settings.get("AGENTSDOCK_AGENT_TOKEN", "").strip()
        try:
            return given or (self.root / "token").read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None

    def make_token(self, settings: Mapping[str, str]) -> str:
        """The token, made at the first installation: 0600 from its first byte."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.token(settings)
        if found is None:
            found = secrets.token_urlsafe(32)
            write_file(self.root / "token", f"{found}\n", 0o600)
        return found

    def user(self) -> str | None:
        """The process that uses the folder, if one does."""
        try:
            with open(self.root / STATE_LOCK, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read(32).decode("ascii", "replace").strip() or "unknown"
        except FileNotFoundError:
            pass
        return None

    def schema(self) -> int:
        """The version of the database's schema, read without an engine; 0 without a database."""
        try:
            with open(self.root / DATABASE, "rb") as file:
                return int.from_bytes(file.read(100)[_SCHEMA_AT : _SCHEMA_AT + 4], "big")
        except FileNotFoundError:
            return 0

    def snapshot(self, newest: int) -> pathlib.Path | None:
        """The latest snapshot that a release of this schema can read."""
        found = {}
        for path in (self.root / "snapshots").glob("schema-*.db"):
            match = re.fullmatch(r"schema-([0-9]+)", path.stem)
            if match and int(match[1]) <= newest:
                found[int(match[1])] = path
        return found[max(found)] if found else None


def write_file(path: pathlib.Path, text: str, mode: int) -> None:
    """Whole or not at all, with its mode from the first byte, through no link.

    What is there already is not written: the way back must work on a full disk.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if not path.is_symlink() and path.read_text(encoding="utf-8") == text:
            path.chmod(mode)
            return
    scratch = path.with_name(f".{path.name}.new")
    scratch.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(scratch, flags, mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def remove(path: pathlib.Path) -> None:
    """A file, a link (never what it leads to), or a folder with all it holds."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def in_words(error: OSError) -> str:
    """What the system said, of which file."""
    full = " (free some space and run this again)" if error.errno == errno.ENOSPC else ""
    return f"{error.filename or 'the disk'}: {error.strerror}{full}"


def order(version: str) -> tuple[Any, ...]:
    """Sorts versions: N.N.N, before it its .devN, aN, bN, rcN.  Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)*)(?:\.?(dev|a|b|rc)(\d+))?", version)
    if match is None:
        raise ValueError(f"{version} is no version")
    stage = {"dev": 0, "a": 1, "b": 2, "rc": 3, None: 4}[match[2]]
    return tuple(int(part) for part in match[1].split(".")), stage, int(match[3] or 0)
