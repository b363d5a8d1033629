"""What a CLI must tell the house about itself.  A fourth CLI is one module that fills this."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from agentsdock.backends.programs import Program
from agentsdock.model.sessions import Session
from agentsdock.streams.neutral import ParserSpec, StreamParser


@frozen
class Completed:
    """A probe command that ran to its end, or was ended at its time limit."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False


class RunProbe(Protocol):
    """Runs a short command guarded, with empty stdin and bounded output; timeout in seconds.

    Never raises OSError: a command that cannot start has ``exit_code`` None and the reason in
    ``stderr``.  A cancelled probe leaves no process.
    """

    async def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float
    ) -> Completed: ...


@frozen
class Diagnostic:
    """What is known of a CLI on this host.

    ``status`` is ready, missing, unauthenticated, error or unknown.  ``program`` (the file that
    was probed) and ``features`` (what the probe learned, opaque to all but its backend) never
    leave the server.  ``message`` and ``action`` name programs by their base name only.
    """

    backend: str
    status: str = "unknown"
    installed: bool | None = None
    authenticated: bool | None = None
    version: str | None = None
    message: str = "Not checked yet."
    action: str | None = None
    checked_at: str | None = None
    last_error: str | None = None
    last_error_at: str | None = None
    program: Program | None = None
    features: Any = None

    @property
    def ready(self) -> bool:
        return self.status == "ready"

    def public(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "status": self.status,
            "available": self.ready,
            "installed": self.installed,
            "authenticated": self.authenticated,
            "version": self.version,
            "message": self.message,
            "action": self.action,
            "checked_at": self.checked_at,
            "last_error": self.last_error,
            "last_error_at": self.last_error_at,
        }


@frozen
class Admitted:
    """The program that a turn was admitted with; it is what runs, found once."""

    backend: str
    executable: str
    version: str | None
    features: Any = field(default=None, repr=False)


@frozen
class AttachedFile:
    """A file that the user gave to a turn, where the CLI can read it."""

    path: str
    filename: str
    content_type: str


@frozen
class Envelope:
    """The composed prompt of one turn and what a success of it commits.

    ``instructions`` are those that go through the CLI's own channel.  ``folders`` hold the
    attached files.
    """

    prompt: str
    instruction_hash: str
    instruction_version: str
    injected: bool
    used_memory: bool
    instructions: str | None = None
    folders: tuple[str, ...] = ()


@frozen
class Command:
    """How to start a turn.

    ``shown_argv`` is what may be seen of ``argv``: the program's base name, no prompt.
    """

    argv: tuple[str, ...]
    shown_argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes | None = None
    stop_signals: tuple[str, ...] = ("SIGTERM",)


@frozen
class TurnContext:
    """What the environment of a turn tells the CLI's helpers."""

    session_id: str
    run_id: str
    server_url: str
    manifest_path: str


class Backend(Protocol):
    name: str
    forks: bool
    """Whether a session of the CLI can be forked: a chat's fork then begins with ``fork_from``."""
    usage_is_total: bool
    """Whether the usage that it tells counts its whole session, not the one turn."""

    async def diagnose(self, run: RunProbe) -> Diagnostic:
        """Find and probe the CLI.  Never raises for what the CLI does."""
        ...

    async def check_sign_in(self, run: RunProbe, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic of a probed program after asking it once who is signed in."""
        ...

    def missing(self) -> Diagnostic:
        """The diagnostic of a CLI that is not there."""
        ...

    async def models(self, run: RunProbe, diagnostic: Diagnostic) -> dict[str, Any]:
        """The catalogue entry less ``diagnostic`` and ``available`` (wire contract, section 3).

        Starts nothing unless the diagnostic is ready.
        """
        ...

    def fallback_models(self, source: str) -> dict[str, Any]:
        """The same where nothing can be asked; ``source`` tells a person why."""
        ...

    def parser(self, spec: ParserSpec) -> StreamParser: ...

    def check_prompt(self, prompt: str, files: Sequence[AttachedFile] = ()) -> None:
        """Raises PromptTooLarge where the user's own part alone cannot be carried."""
        ...

    def compose(
        self,
        session: Session,
        prompt: str,
        files: Sequence[AttachedFile] = (),
        helpers: str = "",
    ) -> Envelope:
        """The prompt as the CLI gets it: instructions and memory where they are due.

        ``helpers`` tells of what the agent may ask of the server; it comes last.
        """
        ...

    def command(
        self, admitted: Admitted, session: Session, envelope: Envelope, context: TurnContext
    ) -> Command:
        """Raises PromptTooLarge where the prompt does not fit its transport."""
        ...
