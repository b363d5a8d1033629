"""``agentsdock replay``: the timeline and the verdict of a recorded run."""

import json
import pathlib
import re
from typing import TYPE_CHECKING

import click

from agentsdock.cli.connection import state_dir_option

if TYPE_CHECKING:
    from agentsdock.turns.judge import Judgement


class ExitStatus(click.ParamType[int]):
    """``N``, ``-N`` or ``signal:N``; a signal becomes a negative number."""

    name = "N|-N|signal:N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        match = re.fullmatch(r"(signal:|-)?(\d{1,3})", str(value))
        if match is None:
            raise click.BadParameter(f"{value!r} is not N, -N or signal:N", ctx, param)
        number = int(match[2])
        if match[1] is None and number <= 255:
            return number
        if match[1] is not None and 1 <= number <= 64:
            return -number
        raise click.BadParameter(f"{value!r} is no status (0-255) and no signal (1-64)", ctx, param)


@click.command()
@click.argument("recording", metavar="FILE|RUN")
@click.option("--backend", type=click.Choice(["cursor", "claude", "codex"]))
@click.option("--exit-status", type=ExitStatus(), help="How the CLI ended.  [default: it stays]")
@click.option("--stderr", metavar="TEXT", help="What it wrote to stderr.")
@click.option("--resume", metavar="ID", help="The conversation that it was asked to resume.")
@click.option("--chunk", type=click.IntRange(min=1), metavar="BYTES", help="Bytes fed at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@state_dir_option
def replay(
    recording: str,
    backend: str | None,
    exit_status: int | None,
    stderr: str | None,
    resume: str | None,
    chunk: int | None,
    as_json: bool,
    state_dir: pathlib.Path,
) -> None:
    """Play a recorded stream and print its timeline and verdict.

    FILE holds what a CLI wrote to stdout, or is a capsule.  RUN is the id of a run whose capsule
    lies in the state directory; a capsule knows backend, exit, stderr and resumed conversation
    itself, and options overrule it.  The status is 0 whenever there is a verdict.
    """
    import attrs

    from agentsdock.testing.replay import read_recording
    from agentsdock.turns.capsule import CapsuleError

    path = find(recording, state_dir.expanduser())
    try:
        known = read_recording(path)
        if known.note is not None:
            click.echo(known.note, err=True)
        told = known.override(
            backend=backend, exit_status=exit_status, stderr=stderr, resume_id=resume
        )
        judgement = told.judge(chunk=chunk)
    except (OSError, CapsuleError) as error:
        raise click.UsageError(f"{recording} cannot be read: {error}") from error
    if as_json:
        click.echo(json.dumps(attrs.asdict(judgement)))
    else:
        show(judgement)


def find(recording: str, state_dir: pathlib.Path) -> pathlib.Path:
    path = pathlib.Path(recording)
    if path.is_file():
        return path
    if re.fullmatch(r"run_[0-9a-f]{16}", recording):
        for suffix in (".capsule", ".capsule.gz"):
            capsule = state_dir / "capsules" / f"{recording}{suffix}"
            if capsule.is_file():
                return capsule
        raise click.UsageError(f"{state_dir} holds no capsule of {recording}.")
    raise click.UsageError(f"{recording} is neither a readable file nor the id of a run.")


def show(judgement: "Judgement") -> None:
    from agentsdock.cli.timeline import clean, line_of

    for event in judgement.events:
        line = line_of(event)
        if line is not None:
            click.echo(str(line))
    counts = ", ".join(f"{n} {name}" for name, n in judgement.tools.items() if n)
    click.echo()
    click.echo(
        f"verdict      {judgement.state}" + (f", {judgement.code}" if judgement.code else "")
    )
    click.echo(f"session      {judgement.session_id or '-'}")
    click.echo(f"segments     {len(judgement.segments)}")
    click.echo(f"tools        {counts or 'none'}")
    click.echo(f"result       {clean(judgement.result_text).strip() or '-'}")
