"""The pytest plugin of the replay kit.  Loaded by pytest on its own; costs nothing unused.

``agentsdock_player``   installs a program that behaves as the Cursor CLI and plays a stream
``agentsdock_replay``   judges a recorded stream: timeline and verdict, without any process
``agentsdock_server``   a running server of one's own with a player as its Cursor CLI
"""

import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agentsdock.testing.server import ServerProcess


@pytest.fixture
def agentsdock_player(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    """``install_player`` of :mod:`agentsdock.testing.player`, in a folder of this test."""
    from agentsdock.testing.player import install_player

    def install(stream: Any = None, **part: Any) -> pathlib.Path:
        return install_player(tmp_path / "player", stream, **part)

    return install


@pytest.fixture
def agentsdock_replay() -> Callable[..., Any]:
    """``replay`` of :mod:`agentsdock.testing.replay`: a file or bytes in, a Judgement out."""
    from agentsdock.testing.replay import replay

    return replay


@pytest.fixture
def agentsdock_server(
    tmp_path: pathlib.Path, agentsdock_player: Callable[..., pathlib.Path]
) -> "Iterator[ServerProcess]":
    """A server on a free loopback port with its own state; stopped by SIGTERM afterwards.

    Its Cursor CLI is the player of ``agentsdock_player``: install another stream at any time
    and the next turn plays it.
    """
    from agentsdock.testing.server import running_server

    environ = {
        "CURSOR_BIN": str(agentsdock_player()),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
    }
    with running_server(tmp_path / "state", environ, token="replay-kit-token") as server:  # noqa: S106
        yield server
