"""A user's repository, made with real git, and snapshots of it under real guards."""

import os
import pathlib
import subprocess

import pytest
from attrs import define, field

from agentsdock.diffs.repository import find
from agentsdock.diffs.snapshot import take
from agentsdock.guard.handle import ZygoteLauncher

USER = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_NOSYSTEM": "1",
}


@define
class User:
    """Somebody with a home and a repository in it."""

    home: pathlib.Path
    repo: pathlib.Path
    launcher: ZygoteLauncher
    state: pathlib.Path
    environ: dict = field(factory=dict)
    taken: int = 0

    def git(self, *arguments, cwd=None, check=True, **options):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **USER}
        return subprocess.run(
            ["git", *arguments],
            cwd=cwd or self.repo,
            env=env,
            check=check,
            capture_output=True,
            **options,
        ).stdout

    def write(self, name, content="one\ntwo\nthree\n"):
        path = self.repo / name if isinstance(name, str) else pathlib.Path(os.fsdecode(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def commit(self, *names):
        self.git("add", "-A", *names)
        self.git("commit", "-q", "-m", "work")

    async def snapshot(self, cwd=None):
        self.taken += 1
        repository = find(str(cwd or self.repo))
        folder = self.state / f"shot-{self.taken}"
        return await take(self.launcher, repository, folder, self.environ, self.state)


@pytest.fixture
async def user(tmp_path):
    home, repo = tmp_path / "home", tmp_path / "home" / "repo"
    repo.mkdir(parents=True)
    state = tmp_path / "state"
    state.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    async with ZygoteLauncher() as launcher:
        user = User(home, repo, launcher, state, environ)
        user.git("init", "-q")
        yield user
