"""Install a program that behaves as the Cursor CLI and plays a recorded stream.

For a test suite that wants a real process without a real CLI::

    program = install_player(tmp_path, stream=recorded, exit_status=0, pause=0.01)
    # point CURSOR_BIN at ``program``, run a turn, then see how it was called:
    turns = [call for call in calls(program) if call.command == "turn"]
"""

import json
import os
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import asdict, field, frozen
from attrs.validators import gt, optional

Probe = Literal["help", "version", "status", "about", "models", "create-chat"]


@frozen
class Answer:
    """What a probe command prints, and its exit status."""

    text: str
    exit_status: int = 0
    on_stderr: bool = False


@frozen
class Script:
    """One player's part.  Pauses in seconds, ``chunk`` in bytes.

    ``stream`` is a file that is played as it is; without one a short demo conversation is
    played, with a pace of its own.  ``exit_status`` of ``-N`` is a death by signal N, of None a
    program that stays open.  ``stderr`` is written before the stream.
    """

    stream: str | None = None
    exit_status: int | None = 0
    stderr: str = ""
    first_pause: float = 0.0
    pause: float = 0.0
    chunk: int | None = field(default=None, validator=optional(gt(0)))
    answers: Mapping[Probe, Answer] = field(factory=dict)


@frozen
class Call:
    """How the player was called once.  ``command`` is ``turn`` or the name of a probe."""

    command: str
    argv: tuple[str, ...]
    cwd: str
    pid: int


def install_player(
    directory: str | os.PathLike[str],
    stream: str | os.PathLike[str] | bytes | None = None,
    *,
    name: str = "cursor-agent",
    exit_status: int | None = 0,
    stderr: str = "",
    first_pause: float = 0.0,
    pause: float = 0.0,
    chunk: int | None = None,
    answers: Mapping[Probe, Answer] | None = None,
) -> pathlib.Path:
    """Write the program ``name`` and what it plays into ``directory``; returns its path.

    ``stream`` is a file, or the bytes themselves.  Installing once more under the same name
    changes what the next call plays; a call in progress keeps its own.
    """
    home = pathlib.Path(directory).absolute()
    home.mkdir(parents=True, exist_ok=True)
    if isinstance(stream, bytes):
        path = home / f"{name}.stream"
        _replace(path, stream)
        stream = path
    script = Script(
        str(pathlib.Path(stream).absolute()) if stream is not None else None,
        exit_status,
        stderr,
        first_pause,
        pause,
        chunk,
        answers or {},
    )
    part = {**asdict(script), "calls": str(_calls_path(home / name))}
    part_path = home / f"{name}.json"
    _replace(part_path, json.dumps(part, indent=1).encode())
    program = home / name
    _replace(program, _launcher(part_path).encode(), mode=0o755)
    return program


def calls(program: pathlib.Path) -> Sequence[Call]:
    """Every call of an installed player so far, oldest first."""
    try:
        lines = _calls_path(program).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    rows = [json.loads(line) for line in lines]
    return [Call(row["command"], tuple(row["argv"]), row["cwd"], row["pid"]) for row in rows]


def _calls_path(program: pathlib.Path) -> pathlib.Path:
    return program.with_name(f"{program.name}.calls.jsonl")


def _launcher(part: pathlib.Path) -> str:
    """A shell line: a ``#!`` line has neither room nor quotes for every interpreter's path."""
    play = pathlib.Path(__file__).with_name("play.py")
    words = [sys.executable, "-I", "-S", str(play), str(part)]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _replace(path: pathlib.Path, data: bytes, mode: int = 0o644) -> None:
    """Swap a file whole: a player that is being started reads the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    fresh.chmod(mode)
    fresh.replace(path)
