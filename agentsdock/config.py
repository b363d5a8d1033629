"""Settings from the environment, read once at start.

Each tunable ``X`` is ``AGENTSDOCK_X``, or ``ZENITHBOT_X`` as older set-ups spell it.  A blank
value is unset.  A value that cannot be read stops the start and names its variable.
"""

import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import field, frozen

from agentsdock.model.limits import TurnLimits
from agentsdock.model.sessions import BACKENDS
from agentsdock.streams.neutral import Bounds

T = TypeVar("T")
MIB = 1024 * 1024
PREFIXES = ("AGENTSDOCK_", "ZENITHBOT_")
STORED_TOKEN = pathlib.Path("token")
"""The file of the state folder that holds the token where no variable does."""
MAX_TOKEN_BYTES = 4096
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class SettingError(Exception):
    """A setting that cannot be used; the message names the variable and what it accepts."""


@frozen
class BackendSettings:
    """One CLI: where it is and how far its turns may go."""

    binary: str | None
    limits: TurnLimits
    bounds: Bounds


@frozen
class Settings:
    """Everything an operator can set.  Times in seconds, sizes in bytes unless named MB."""

    state_dir: pathlib.Path
    bind: str
    port: int
    token: str | None = field(repr=False)
    cwd: str
    default_backend: str
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    backends: dict[str, BackendSettings]
    max_active_runs: int
    min_start_available_mem_mb: int
    busy_retry_seconds: float
    job_max_active_runs: int
    job_min_available_mem_mb: int
    catalog_timeout_seconds: float
    diagnostic_ttl_seconds: float
    launch_pace: int
    system_prompt_chars: int
    session_event_limit: int
    max_event_response_limit: int
    max_upload_bytes: int
    fork_memory_chars: int
    fork_memory_item_chars: int
    history_import_limit: int
    history_import_text_chars: int
    claude_projects_root: pathlib.Path
    codex_sessions_root: pathlib.Path
    websocket_stall_seconds: float
    capsule_bytes: int
    """Raw recording of one run; 0 records nothing."""
    capsules_total_bytes: int
    code_diff_seconds: float
    """For comparing a repository after a turn."""
    code_diff_start_seconds: float
    """What noting a repository's state may delay a turn; 0 notes nothing."""
    environ: Mapping[str, str] = field(repr=False)
    """The server's own environment, from which a CLI's is made."""


class Reader:
    """Typed look-ups in an environment, with the variable's name in each error."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def raw(self, suffix: str, *names: str) -> tuple[str, str] | None:
        """(variable, value) of the first that is set and not blank; bare ``names`` come last."""
        for name in (*(prefix + suffix for prefix in PREFIXES), *names):
            value = self._environ.get(name, "").strip()
            if value:
                return name, value
        return None

    def text(self, suffix: str, default: str, *names: str) -> str:
        found = self.raw(suffix, *names)
        return found[1] if found else default

    def number(
        self, suffix: str, default: float, *, floor: float = 0, ceiling: float = 1e12
    ) -> float:
        return self._number(suffix, default, float, floor, ceiling, "a number")

    def integer(self, suffix: str, default: int, *, floor: int = 0, ceiling: int = 10**12) -> int:
        return self._number(suffix, default, int, floor, ceiling, "a whole number")

    def _number(
        self,
        suffix: str,
        default: T,
        parse: Callable[[str], T],
        floor: Any,
        ceiling: Any,
        kind: str,
    ) -> T:
        found = self.raw(suffix)
        if found is None:
            return default
        name, value = found
        try:
            number = parse(value)
            valid = bool(floor <= number <= ceiling)
        except ValueError:
            valid = False
        if not valid:
            span = f"of at least {floor:g}" if ceiling >= 1e12 else f"from {floor:g} to {ceiling:g}"
            raise SettingError(f"{name} must be {kind} {span}, not {value!r}")
        return number

    def choice(self, suffix: str, default: str, choices: tuple[str, ...]) -> str:
        found = self.raw(suffix)
        if found is None:
            return default
        name, value = found
        if value not in choices:
            raise SettingError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def names(self, suffix: str) -> tuple[str, ...]:
        found = self.raw(suffix)
        return tuple(part.strip() for part in found[1].split(",") if part.strip()) if found else ()


def _bounds(read: Reader, stem: str) -> Bounds:
    text = read.integer(f"{stem}_TEXT_EVENT_MAX_CHARS", 131_072, floor=12_000)
    tool = read.integer("CODEX_APP_SERVER_TOOL_OUTPUT_MAX_CHARS", 12_000, floor=12_000)
    return Bounds(
        line_bytes=read.integer("PROCESS_STREAM_LIMIT", 32 * MIB, floor=64 * 1024),
        stream_lines=read.integer(f"{stem}_MAX_STREAM_EVENTS", 200_000, floor=100),
        stream_bytes=read.integer(f"{stem}_MAX_STREAM_BYTES", 512 * MIB, floor=16 * MIB),
        text_chars=text,
        accumulated_text_chars=read.integer(
            f"{stem}_ACCUMULATED_TEXT_MAX_CHARS", max(262_144, text), floor=text
        ),
        tool_calls=read.integer(f"{stem}_MAX_TOOL_CALLS", 4096, floor=32),
        tool_chars=tool,
        thought_chars=tool,
    )


def _limits(read: Reader, stem: str) -> TurnLimits:
    silent = stem != "CURSOR"
    startup = read.number(f"{stem}_STARTUP_TIMEOUT_SECONDS", 120, floor=5)
    absolute = read.number("REQUEST_TIMEOUT_SECONDS", 86_400, floor=1) if silent else 21_600
    kill = read.raw("IDLE_KILL_SECONDS")
    idle = (
        read.number("IDLE_KILL_SECONDS", 0, floor=1)
        if kill
        else read.number(f"{stem}_IDLE_TIMEOUT_SECONDS", 1800 if silent else 900, floor=30)
    )
    warn = (
        read.number("IDLE_WARN_SECONDS", 0, floor=1)
        if read.raw("IDLE_WARN_SECONDS")
        else (min(600.0, idle / 2) if silent else None)
    )
    return TurnLimits(
        startup_seconds=startup,
        turn_seconds=read.number(
            f"{stem}_TURN_TIMEOUT_SECONDS", max(absolute, startup), floor=startup
        ),
        idle_seconds=idle,
        idle_warn_seconds=warn,
        exit_seconds=read.number(f"{stem}_POST_TERMINAL_EXIT_SECONDS", 30, floor=0.1),
        approval_seconds=read.number(f"{stem}_APPROVAL_WAIT_SECONDS", 60, floor=1),
        stderr_tail_bytes=read.integer(f"{stem}_STDERR_TAIL_BYTES", 65_536, floor=4096),
        stop_grace_seconds=read.number("STOP_GRACE_SECONDS", 2.0),
        drain_seconds=read.number(f"{stem}_STDERR_DRAIN_TIMEOUT_SECONDS", 2.0, floor=0.1),
        teardown_grace_seconds=read.number(f"{stem}_GUARD_TEARDOWN_GRACE_SECONDS", 1.5, floor=1.0),
    )


def _root(environ: Mapping[str, str], name: str, default: str) -> pathlib.Path:
    return pathlib.Path(environ.get(name, "").strip() or default).expanduser()


def _stored_token(state_dir: pathlib.Path) -> str | None:
    """The token in the state folder; the server's user alone may read it."""
    path = state_dir / STORED_TOKEN
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_mode & 0o077:
            raise SettingError(f"others can read the token in {path}: run chmod 600 on it")
        try:
            return file.read(MAX_TOKEN_BYTES).decode("ascii").strip() or None
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"{path} holds no token: {error}") from error


def _working_directory(wanted: str) -> str:
    for place in (wanted, os.path.expanduser("~")):
        if os.path.isdir(place):
            return place
    return tempfile.gettempdir()


def load(environ: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:
    """Settings of this environment; ``overrides`` come from the command line.

    Raises SettingError.
    """
    read = Reader(environ)
    bind = overrides.get("bind") or read.text("AGENT_BIND", "127.0.0.1")
    state = overrides.get("state_dir") or read.text(
        "STATE_DIR", "~/.agentsdock", "AGENTS_SERVER_STATE_DIR", "ZENITHBOT_AGENT_DIR"
    )
    state_dir = pathlib.Path(state).expanduser().absolute()
    token = read.text("AGENT_TOKEN", "", "ZENITHDOCK_AGENT_TOKEN") or _stored_token(state_dir)
    if bind not in LOOPBACK and token is None:
        raise SettingError(
            f"AGENTSDOCK_AGENT_BIND is {bind}, which other machines can reach: set "
            "AGENTSDOCK_AGENT_TOKEN too, or bind to 127.0.0.1"
        )
    port = overrides.get("port")
    stems = {"cursor": "CURSOR", "claude": "CLAUDE", "codex": "CODEX"}
    return Settings(
        state_dir=state_dir,
        bind=bind,
        port=read.integer("AGENT_PORT", 7850, ceiling=65_535) if port is None else port,
        token=token,
        cwd=_working_directory(os.path.expanduser(read.text("AGENT_CWD", "~"))),
        default_backend=read.choice("BACKEND", "claude", BACKENDS),
        allowed_hosts=read.names("ALLOWED_HOSTS"),
        allowed_origins=read.names("ALLOWED_ORIGINS"),
        backends={
            name: BackendSettings(
                environ.get(f"{stem}_BIN", "").strip() or None,
                _limits(read, stem),
                _bounds(read, stem),
            )
            for name, stem in stems.items()
        },
        max_active_runs=read.integer("MAX_ACTIVE_AGENT_RUNS", 10),
        min_start_available_mem_mb=read.integer("MIN_START_AVAILABLE_MEM_MB", 2048),
        busy_retry_seconds=read.number("JOB_BUSY_RETRY_SECONDS", 60, floor=5),
        job_max_active_runs=read.integer("JOB_MAX_ACTIVE_RUNS", 0),
        job_min_available_mem_mb=read.integer("JOB_MIN_AVAILABLE_MEM_MB", 4096),
        catalog_timeout_seconds=read.number("RUNTIME_CATALOG_TIMEOUT_SECONDS", 6, floor=0.1),
        diagnostic_ttl_seconds=read.number("RUNTIME_DIAGNOSTIC_TTL_SECONDS", 60),
        launch_pace=read.integer("LAUNCH_PACE", 0),
        system_prompt_chars=read.integer("SESSION_SYSTEM_PROMPT_CHARS", 24_000, floor=1),
        session_event_limit=read.integer("SESSION_EVENT_LIMIT", 100, floor=1),
        max_event_response_limit=read.integer("MAX_EVENT_RESPONSE_LIMIT", 1000, floor=1),
        max_upload_bytes=read.integer("MAX_UPLOAD_BYTES", 25 * 1024 * MIB, floor=1),
        fork_memory_chars=read.integer("FORK_MEMORY_CHARS", 24_000, floor=4000),
        fork_memory_item_chars=read.integer("FORK_MEMORY_ITEM_CHARS", 1800, floor=1),
        history_import_limit=read.integer("HISTORY_IMPORT_LIMIT", 400, floor=1),
        history_import_text_chars=read.integer("HISTORY_IMPORT_TEXT_CHARS", 12_000, floor=1),
        claude_projects_root=_root(environ, "CLAUDE_PROJECTS_ROOT", "~/.claude/projects"),
        codex_sessions_root=_root(
            environ,
            "CODEX_SESSIONS_ROOT",
            os.path.join(environ.get("CODEX_HOME", "").strip() or "~/.codex", "sessions"),
        ),
        websocket_stall_seconds=read.number("WEBSOCKET_STALL_SECONDS", 10, floor=0.1),
        capsule_bytes=read.integer("CAPSULE_MAX_BYTES", 64 * MIB),
        capsules_total_bytes=read.integer("CAPSULES_TOTAL_BYTES", 1024 * MIB),
        code_diff_seconds=read.number("CODE_DIFF_SNAPSHOT_TIMEOUT_SECONDS", 120, floor=1),
        code_diff_start_seconds=read.number("CODE_DIFF_START_DELAY_SECONDS", 3, ceiling=120),
        environ=dict(environ),
    )
