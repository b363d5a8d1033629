"""How CLIs are asked about themselves, and what is said of the answers: one wording for all,
with the command that would help."""

import re
from collections.abc import Mapping

from attrs import evolve, frozen

from agentsdock.backends.environment import runner_environment
from agentsdock.backends.plain_text import plain, public_reason
from agentsdock.backends.programs import Program, find
from agentsdock.backends.protocol import Completed, Diagnostic, RunProbe
from agentsdock.config import Settings
from agentsdock.model.times import iso_now

RECHECK = "then use Recheck CLIs"


@frozen
class Cli:
    """How people know a CLI.

    ``title`` is its name in a sentence, ``programs`` what it is called on a PATH, ``variable``
    the setting that names another program, ``install`` how one gets it, ``checks`` the
    arguments with which it tells a person of its state.
    """

    backend: str
    title: str
    programs: tuple[str, ...]
    variable: str
    install: str
    checks: tuple[str, ...]

    async def identified(
        self, ask: "Asking", binary: str | None, version: re.Pattern[str]
    ) -> Diagnostic:
        """The program that names itself with this version line; else why there is none, which
        has no ``version``.  ``binary`` is the only candidate where it is set."""
        program = find(binary or self.programs[0], ask.env["PATH"])
        if program is None:
            return self.missing(named=binary is not None)
        found = Diagnostic(self.backend, installed=True, program=program)
        answer = await ask(program, "--version")
        if trouble := ask.trouble(answer, f"`{program.name} --version`"):
            reason = public_reason(answer.stderr or answer.stdout)
            return self.error(found, f"{trouble}{because(reason)}.")
        line = version.search(plain(answer.stdout))
        if line is None:
            # Another program's words are not repeated.
            return self.unfit(found, f"`{program.name}` is not the {self.title}")
        return evolve(found, version=line[1])

    def typed(self, found: Diagnostic) -> str:
        """What a person calls it: the file behind its links may be named after its version."""
        name = found.program.name if found.program else ""
        return name if name in self.programs else self.programs[0]

    def missing(self, named: bool) -> Diagnostic:
        """Nothing was found; ``named`` is whether the setting said where to look."""
        sought = f"{self.variable} names no program" if named else f"No {self.title} was found"
        called = " or ".join(f"`{program}`" for program in self.programs)
        return Diagnostic(
            self.backend,
            status="missing",
            installed=False,
            authenticated=False,
            message=f"{sought} that the server can run.",
            action=(
                f"Install the {self.title} {self.install}, make {called} reachable on the "
                f"server's PATH or set {self.variable}, {RECHECK}."
            ),
            checked_at=iso_now(),
        )

    def ready(self, found: Diagnostic, message: str | None = None) -> Diagnostic:
        return evolve(
            found,
            status="ready",
            authenticated=True,
            message=message or f"The {self.title} is installed, compatible and signed in.",
            action=None,
            checked_at=iso_now(),
        )

    def signed_out(self, found: Diagnostic, message: str, action: str) -> Diagnostic:
        return evolve(
            found,
            status="unauthenticated",
            authenticated=False,
            message=message,
            action=f"{action}, {RECHECK}.",
            checked_at=iso_now(),
        )

    def unclear(self, found: Diagnostic, trouble: str) -> Diagnostic:
        """Nobody can say whether it is signed in."""
        return self.error(
            found, f"Could not tell whether the {self.title} is signed in: {trouble}."
        )

    def error(self, found: Diagnostic, message: str) -> Diagnostic:
        name = self.typed(found)
        *first, last = (f"`{name} {arguments}`" for arguments in self.checks)
        asked = f"{', '.join(first)} and {last}" if first else last
        return evolve(
            found,
            status="error",
            authenticated=None,
            message=message,
            action=f"Run {asked} as the user that runs the server, {RECHECK}.",
            checked_at=iso_now(),
        )

    def unfit(self, found: Diagnostic, problem: str) -> Diagnostic:
        """Nothing may run what was found unfit, so it is not pinned."""
        told = self.error(found, f"The installed {self.title} cannot be used: {problem}.")
        hint = f"Run `{self.typed(found)} update` or set {self.variable} to a newer program. "
        return evolve(told, action=hint + str(told.action), program=None)


@frozen
class Asking:
    """Runs one program after another in the same environment."""

    run: RunProbe
    env: Mapping[str, str]
    timeout: float

    @classmethod
    def of(cls, settings: Settings, run: RunProbe) -> "Asking":
        env = runner_environment(settings.environ)
        return cls(run, env, settings.catalog_timeout_seconds)

    async def __call__(self, program: Program, *arguments: str) -> Completed:
        return await self.run((program.path, *arguments), env=self.env, timeout=self.timeout)

    def trouble(self, answer: Completed, asked: str) -> str | None:
        """Why an answer is none, in our words."""
        if answer.timed_out:
            return f"{asked} did not answer within {self.timeout:g} s"
        if answer.exit_code is None:
            return f"{asked} could not be started"
        if answer.exit_code != 0:
            return f"{asked} ended with status {answer.exit_code}"
        return None


def because(reason: str) -> str:
    return f": {reason}" if reason else ""
