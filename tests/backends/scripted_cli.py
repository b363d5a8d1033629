"""A scripted Cursor CLI, as answers to commands and as a real program."""

import pathlib
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio
from attrs import define, field

from agentsdock import config
from agentsdock.backends.cursor_agent_client import CursorAgentClient
from agentsdock.backends.protocol import Completed

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "cursor-cli"


def said(name: str) -> str:
    return (FIXTURES / name).read_bytes().decode()


def printed(name: str, exit_code: int = 0, stream: str = "stdout") -> Completed:
    """A fixture as the table in its README says that it is played."""
    text = said(name)
    return Completed(
        exit_code,
        stdout=text if stream in ("stdout", "both") else "",
        stderr=text if stream in ("stderr", "both") else "",
    )


HEALTHY = {
    "--help": printed("help-compatible.txt"),
    "about": printed("about.txt"),
    "--version": printed("version.txt"),
    "status": printed("status-logged-in.txt"),
    "--list-models": printed("list-models-free-plan.txt"),
    "models": printed("list-models-paid-plan.txt"),
}


@define
class Cli:
    """Answers of programs by base name and arguments; ``calls`` holds what was run.

    ``before`` is awaited in front of each answer.
    """

    answers: dict[str, dict[str, Completed]] = field(factory=dict)
    calls: list[tuple[str, ...]] = field(factory=list)
    environments: list[Mapping[str, str]] = field(factory=list)
    before: Callable[[str], Awaitable[None]] | None = None

    async def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float
    ) -> Completed:
        await trio.lowlevel.checkpoint()
        self.calls.append(tuple(argv))
        self.environments.append(env)
        arguments = " ".join(argv[1:])
        if self.before is not None:
            await self.before(arguments)
        return self.answers[pathlib.Path(argv[0]).name][arguments]

    @property
    def asked(self) -> list[str]:
        return [" ".join(call[1:]) for call in self.calls]


def client(environ: Mapping[str, str]) -> CursorAgentClient:
    return CursorAgentClient(config.load(environ))


def put(folder: pathlib.Path, name: str, text: str = "#!/bin/sh\n") -> pathlib.Path:
    """An executable file."""
    program = folder / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)
    return program


def playing(answers: Mapping[str, Completed], folder: pathlib.Path) -> str:
    """A program that prints these answers; arguments that have none end with status 64."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for number, (arguments, answer) in enumerate(answers.items()):
        out, err = folder / f"{number}.out", folder / f"{number}.err"
        out.write_bytes(answer.stdout.encode())
        err.write_bytes(answer.stderr.encode())
        cases.append(
            f"{shlex.quote(arguments)}) cat {shlex.quote(str(out))};"
            f" cat {shlex.quote(str(err))} >&2; exit {answer.exit_code};;"
        )
    script = "\n".join(cases)
    return f'#!/bin/sh\nPATH=/usr/bin:/bin\ncase "$*" in\n{script}\nesac\nexit 64\n'


async def run_really(argv: Sequence[str], *, env: Mapping[str, str], timeout: float) -> Completed:
    """A RunProbe on plain processes."""
    try:
        with trio.move_on_after(timeout):
            done = await trio.run_process(
                list(argv),
                env=env,
                stdin=b"",
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
            return Completed(
                done.returncode,
                done.stdout.decode(errors="replace"),
                done.stderr.decode(errors="replace"),
            )
    except (OSError, subprocess.SubprocessError) as error:
        return Completed(None, "", str(error))
    return Completed(None, "", "", timed_out=True)
