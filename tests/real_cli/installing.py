"""The pinned CLIs, installed once into the user's cache and used from there.

Nothing of the packages is run by npm: the programs are the native files of the platform's own
packages.  Versions and hashes are those of the lock file beside this module, which names no
address: the registry is the one that npm is set up with.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

from attrs import frozen

PINS = pathlib.Path(__file__).with_name("clis")
INSTALL_SECONDS = 240
"""Some 400 MB come down once."""
PROGRAMS = {
    "claude": "@anthropic-ai/claude-code-*/claude",
    "codex": "@openai/codex-*/vendor/*/bin/codex",
}


class Unavailable(Exception):
    """The CLIs cannot be had here; the message says why."""


@frozen
class Clis:
    claude: pathlib.Path
    codex: pathlib.Path


def installed() -> Clis:
    """The programs, installed if need be.  Raises Unavailable."""
    npm = shutil.which("npm")
    lock = (PINS / "package-lock.json").read_bytes()
    folder = _cache() / hashlib.sha256(lock).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # whoever holds it is bounded in time
            if not (folder / "whole").exists():
                if npm is None:
                    raise Unavailable("npm is not installed")
                _install(npm, folder)
                (folder / "whole").touch()
    except OSError as error:
        raise Unavailable(f"the cache folder cannot be used: {error}") from error
    return Clis(**{name: _program(folder, pattern) for name, pattern in PROGRAMS.items()})


def _cache() -> pathlib.Path:
    root = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    return pathlib.Path(root).expanduser() / "agentsdock-test-clis"


def _install(npm: str, folder: pathlib.Path) -> None:
    for pin in PINS.glob("package*.json"):
        shutil.copy(pin, folder)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
    try:
        done = subprocess.run(
            [npm, "ci", *options],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm took more than {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if "npm error" in line), "no reason given")
        raise Unavailable(f"npm cannot install the CLIs: {reason}")


def _program(folder: pathlib.Path, pattern: str) -> pathlib.Path:
    for found in sorted((folder / "node_modules").glob(pattern)):
        done = subprocess.run(
            [found, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
        if done.returncode == 0:  # on glibc the package for musl may be there too
            return found
    raise Unavailable(f"npm installed no program for this platform ({pattern})")
