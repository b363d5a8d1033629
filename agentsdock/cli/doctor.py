"""``agentsdock doctor``: probe the CLIs of this machine as the server would, and show each step."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from attrs import field, frozen

from agentsdock.cli.timeline import one_line

if TYPE_CHECKING:
    from agentsdock.backends.protocol import Completed, Diagnostic, RunProbe
    from agentsdock.config import Settings

QUESTIONS = {
    "--help": "has it the options that a turn needs?",
    "about": "is it the agent, or another program of that name?",
    "--version": "which build is it?",
    "status": "is it signed in?",
    "--list-models": "which models may it use?",
    "models": "which models may it use?",
}
OUTPUT_CHARS = 100


@frozen
class Step:
    """One probe command and how it went; ``seconds`` is its whole duration."""

    argv: tuple[str, ...]
    answer: "Completed"
    seconds: float


@frozen
class Finding:
    """What is known of one CLI, and the steps that told."""

    diagnostic: "Diagnostic"
    steps: list[Step] = field(factory=list)


@frozen
class Recorder:
    """A RunProbe that keeps what it ran."""

    run: "RunProbe"
    steps: list[Step]

    async def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float
    ) -> "Completed":
        began = time.monotonic()
        answer = await self.run(argv, env=env, timeout=timeout)
        self.steps.append(Step(tuple(argv), answer, time.monotonic() - began))
        return answer


@click.command()
def doctor() -> None:
    """Say which agent CLIs this machine has and whether turns can run on them.

    The CLIs are probed here and now, guarded like a turn, whether or not a server runs.  The
    status is 0 if at least one is ready.
    """
    import trio

    from agentsdock import config

    try:
        settings = config.load()
    except config.SettingError as error:
        click.echo(f"agentsdock: {error}", err=True)
        sys.exit(2)
    findings = trio.run(examine, settings)
    where = "token set" if settings.token else "no token"
    click.echo(f"settings  {settings.bind}:{settings.port}, {where}, state in {settings.state_dir}")
    for finding in findings:
        show(finding, settings)
    sys.exit(0 if any(finding.diagnostic.ready for finding in findings) else 1)


async def examine(settings: "Settings") -> list[Finding]:
    """Probe every CLI, one after the other."""
    from agentsdock.backends.guarded_probe import GuardedProbe
    from agentsdock.backends.probing import Runtimes
    from agentsdock.backends.registry import make_backends
    from agentsdock.guard.handle import ZygoteLauncher
    from agentsdock.model.sessions import BACKENDS

    findings = []
    async with ZygoteLauncher() as launcher:
        for name in BACKENDS:
            steps: list[Step] = []
            probe = Recorder(GuardedProbe(launcher, settings.cwd), steps)
            runtimes = Runtimes(settings, make_backends(settings), probe)
            findings.append(Finding(await runtimes.check(name), steps))
    return findings


def show(finding: Finding, settings: "Settings") -> None:
    found = finding.diagnostic
    version = f", {found.version}" if found.version else ""
    click.echo(f"\n{found.backend:<9} {found.status}{version}")
    binary = settings.backends[found.backend].binary
    if binary:
        click.echo(f"          {found.backend.upper()}_BIN is {binary}; nothing else is looked at")
    for step in finding.steps:
        click.echo(f"  $ {' '.join(step.argv)}    {QUESTIONS.get(step.argv[-1], '')}")
        click.echo(f"      {outcome(step)}")
    click.echo(f"  {found.message}")
    if found.action:
        click.echo(f"  {found.action}")


def outcome(step: Step) -> str:
    answer = step.answer
    if answer.timed_out:
        return f"no answer within {step.seconds:.1f} s; ended"
    if answer.exit_code is None:
        return f"could not be started: {one_line(answer.stderr, OUTPUT_CHARS)}"
    said = one_line(answer.stdout.strip() or answer.stderr, OUTPUT_CHARS)
    return f"status {answer.exit_code} after {step.seconds:.2f} s: {said or 'no output'}"
