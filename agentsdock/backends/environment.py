"""The environment that a CLI gets: the server's own, less what is not the CLI's business."""

import os
import pathlib
import re
import sys
from collections.abc import Mapping

from agentsdock.backends.protocol import TurnContext

# The server's settings, its secrets, and what an outer server told a turn; an agent that
# starts a server of its own must not find itself in ours.
_OURS = ("AGENTSDOCK_", "AGENTS_SERVER_", "ZENITHBOT_", "ZENITHDOCK_")
# Switches that change how any program on the way starts, set for the server and not for it.
_RUNTIME_SWITCHES = ("NODE_OPTIONS", "LD_PRELOAD", "PYTHON", "DYLD_")
# Marks of an outer agent, which make an inner one refuse or talk to the wrong parent.
_NESTING = ("CLAUDECODE",)
# Handles of the service manager that started the server.
_SERVICE = ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_")
# They aim git at a repository, whatever folder it is called in.
_REPOSITORY = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)
_DROPPED = _OURS + _RUNTIME_SWITCHES + _NESTING + _SERVICE + _REPOSITORY
# Set but empty they are taken for a wrong key or for the folder that the turn runs in.
_NEVER_BLANK = (
    "CURSOR_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
)

_HELPERS = {
    "AGENTSDOCK_JOBS_CLI": "agentsdock-jobs",
    "AGENTSDOCK_CHATS_CLI": "agentsdock-chats",
    "AGENTSDOCK_PUBLISH_CLI": "agentsdock-publish",
}


def runner_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every process of a CLI gets, probes included.

    A service starts with a bare PATH: the folders where people install command line tools
    are put in front of it, where they exist.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_DROPPED)}
    for name in _NEVER_BLANK:
        if not kept.get(name, "-").strip():
            del kept[name]
    home = pathlib.Path(environ.get("HOME") or os.path.expanduser("~"))
    path = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if part]
    tools = [str(folder) for folder in _tool_folders(home)]
    kept["PATH"] = os.pathsep.join([*(one for one in tools if one not in path), *path])
    return kept


def turn_environment(
    base: Mapping[str, str], context: TurnContext, executable: str
) -> dict[str, str]:
    """The runner's environment and what a turn's helpers need to know.

    The authority file is told in the prompt only, never here.
    """
    return {
        **base,
        "PATH": _with_folder(base.get("PATH", ""), os.path.dirname(executable)),
        "AGENTSDOCK_CHAT_ID": context.session_id,
        "AGENTSDOCK_MANIFEST_PATH": context.manifest_path,
        "AGENTSDOCK_SERVER_URL": context.server_url,
        **_helpers(pathlib.Path(sys.executable).parent),
    }


def _tool_folders(home: pathlib.Path) -> list[pathlib.Path]:
    wanted = [
        home / ".local/bin",
        home / ".npm-global/bin",
        home / ".cargo/bin",
        home / ".bun/bin",
        pathlib.Path("/opt/homebrew/bin"),
        pathlib.Path("/usr/local/bin"),
        *(version / "bin" for version in _node_versions(home / ".nvm/versions/node")),
    ]
    return [folder for folder in wanted if folder.is_dir()]


def _node_versions(folder: pathlib.Path) -> list[pathlib.Path]:
    """Newest first."""
    try:
        versions = list(folder.iterdir())
    except OSError:
        return []
    return sorted(versions, key=lambda one: _numbers(one.name), reverse=True)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]


def _with_folder(path: str, folder: str) -> str:
    parts = [part for part in path.split(os.pathsep) if part]
    return os.pathsep.join(parts if folder in parts else [folder, *parts])


def installed_helpers() -> frozenset[str]:
    """The variables of the helper programs that lie beside this server's Python."""
    return frozenset(_helpers(pathlib.Path(sys.executable).parent))


def _helpers(folder: pathlib.Path) -> dict[str, str]:
    programs = {name: folder / program for name, program in _HELPERS.items()}
    return {name: str(program) for name, program in programs.items() if program.is_file()}
