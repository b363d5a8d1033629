"""Git as a guarded process that knows only what we tell it."""

import math
import os
from collections.abc import Mapping, Sequence

from attrs import frozen

from agentsdock.guard.contract import SpawnFailed
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.guard.once import Completed, run_once

SAID_CHARS = 200
DEFAULT_OUTPUT_BYTES = 1024 * 1024


class NoDiff(Exception):
    """What a turn changed cannot be told; the message says why, for a person."""


class GitFailed(NoDiff):
    """Git ended with an error; ``said`` is the end of what it wrote about it."""

    def __init__(self, command: str, said: str) -> None:
        super().__init__(f"git {command} failed in this repository")
        self.said = said


@frozen
class Git:
    """Runs git in ``folder``; the whole of its environment is ``env``.

    A cancelled command is killed with all that it started, and so is one whose server dies.
    """

    launcher: ZygoteLauncher
    program: str
    env: Mapping[str, str]
    folder: str

    async def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        max_output: int = DEFAULT_OUTPUT_BYTES,
        statuses: Sequence[int] = (0,),
        **env: str,
    ) -> Completed:
        """Raises GitFailed for an exit status other than ``statuses``, or NoDiff."""
        argv = (self.program, *arguments)
        try:
            done = await run_once(
                self.launcher,
                argv,
                {**self.env, **env},
                self.folder,
                math.inf,
                max_output,
                stdin,
            )
        except SpawnFailed as error:
            raise NoDiff(f"git could not be started: {error}") from error
        if done.exit_code not in statuses:
            raise GitFailed(arguments[0], done.stderr.decode("utf-8", "replace")[-SAID_CHARS:])
        return done


def reading(environ: Mapping[str, str], git_dir: str | None) -> dict[str, str]:
    """The environment to read a user's configuration: theirs, without variables of git."""
    names = ("HOME", "PATH", "XDG_CONFIG_HOME")
    kept = {name: environ[name] for name in names if name in environ}
    return {**kept, **_QUIET, **({"GIT_DIR": git_dir} if git_dir else {})}


def private(environ: Mapping[str, str], git_dir: str, root: str) -> dict[str, str]:
    """The environment for a git folder of our own: no configuration but the folder's."""
    return {
        "PATH": environ.get("PATH", os.defpath),
        "HOME": git_dir,
        "XDG_CONFIG_HOME": git_dir,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_DIR": git_dir,
        "GIT_WORK_TREE": root,
        "GIT_NO_REPLACE_OBJECTS": "1",
        **_QUIET,
    }


_QUIET = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
}
"""Nothing is asked, locked or fetched."""
