"""Scratch homes to install into, and releases to install."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import environments
import prefix
import runtime_manifest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]


def make_checkout(folder, version=None, edits=()):
    """A checkout of a commit with the runtime files of this tree, perhaps as another version.

    ``edits`` are (path, function of the text) pairs, made before the commit.
    """
    folder.mkdir(parents=True)
    for path in sorted(runtime_manifest._present(ROOT)):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    if version:
        edits = (*edits, ("agentsdock/__init__.py", lambda _: f'__version__ = "{version}"\n'))
    for path, edit in edits:
        (folder / path).write_text(edit((folder / path).read_text()))
    git = [*GIT, "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-f", "."], check=True)
    environ = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    subprocess.run([*git, "commit", "-qm", "x"], check=True, env=environ)
    return folder


class Home:
    """A user's home with a stand-in for systemd; what it started is ended by ``close``."""

    def __init__(self, root, prefix_name="prefix", state_name="state"):
        self.root = root
        self.prefix, self.state = root / prefix_name, root / state_name
        self.bin, self.stub = root / "stub bin", root / "stub"
        for folder in (self.bin, self.stub):
            folder.mkdir(parents=True)
        program = pathlib.Path(__file__).with_name("systemctl_stub.py")
        self.tool("systemctl", f'exec "{sys.executable}" -IS "{program}" "$@"')
        self.tool("loginctl", "echo Linger=yes")
        self.tool("journalctl", f"tail -n 15 '{self.stub}/journal'")
        (self.stub / "calls").touch()
        self.seed()

    def bring(self, checkout, schema):
        """Put a release beside the active one, as an installation does that is not finished."""
        home = prefix.Prefix(self.prefix)
        release = runtime_manifest.release_of(checkout)
        key = environments.provide(home, checkout)
        staging = environments.stage(home, checkout, release, key)
        prefix.Installed(release.id, release.version, schema, key).write(staging)
        staging.rename(home.release_dir(release.id))

    def tool(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def seed(self):
        """The packages of this interpreter in the place of those that pip would install."""
        packages = self.prefix / "environments" / environments.key_of(ROOT)
        there = packages / "lib" / f"python{sysconfig.get_python_version()}"
        there.mkdir(parents=True)
        (there / "site-packages").symlink_to(sysconfig.get_path("purelib"))
        (self.prefix / ".agentsdock").touch()

    @property
    def environ(self):
        ours = ("AGENTSDOCK_", "PYTHON")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        return {
            **kept,
            "HOME": str(self.root),
            "STUB": str(self.stub),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "XDG_CONFIG_HOME": "",
            "TMPDIR": str(self.root),
        }

    def command(self, source, *options):
        words = ["sh", str(source / "install.sh"), "--prefix", str(self.prefix)]
        words += ["--non-interactive", *map(str, options)]
        if not (self.prefix / "settings.env").exists():
            words += ["--state-dir", str(self.state)]
        return words

    def install(self, source, *options, **environ):
        return self.run(self.command(source, *options), **environ)

    def run(self, words, **environ):
        return subprocess.run(
            [str(word) for word in words],
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def agentsdock(self, *words):
        return self.run([self.prefix / "bin/agentsdock", *words])

    @property
    def current(self):
        with contextlib.suppress(OSError):
            return pathlib.PurePath(os.readlink(self.prefix / "current")).name
        return None

    def close(self):
        self.run([self.bin / "systemctl", "--user", "stop"])
