"""``agentsdock rejudge``: what this release makes of the runs that others have judged."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import click

from agentsdock.cli.connection import state_dir_option
from agentsdock.cli.replay import find


@click.command()
@click.argument("runs", metavar="[RUN|FILE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each run.")
@state_dir_option
def rejudge(runs: tuple[str, ...], as_json: bool, state_dir: pathlib.Path) -> None:
    """Judge recorded runs again and tell which verdicts change.

    Without RUN, all recordings of the state directory.  A recording that was cut or breaks off
    is passed over.  The status is 1 if a verdict changed.
    """
    folder = state_dir.expanduser()
    paths = [find(run, folder) for run in runs] or sorted((folder / "capsules").glob("run_*"))
    counts = {"same": 0, "changed": 0, "passed over": 0}
    for told in _judged(paths):
        counts[told["outcome"]] += 1
        if as_json:
            click.echo(json.dumps(told))
        elif told["outcome"] == "changed":
            click.echo(
                f"{told['run']}  {told['backend']} {told['version'] or '-'}  "
                f"{told['before'] or 'succeeded'} -> {told['now'] or 'succeeded'}"
            )
        elif told["outcome"] == "passed over":
            click.echo(f"{told['run']}  passed over: {told['note']}", err=True)
    if not as_json:
        click.echo(", ".join(f"{count} {name}" for name, count in counts.items()))
    raise SystemExit(1 if counts["changed"] else 0)


def _judged(paths: list[pathlib.Path]) -> Iterator[dict[str, Any]]:
    from agentsdock.turns.capsule import CapsuleError

    for path in paths:
        told = {"run": path.name.partition(".")[0], "backend": None, "version": None}
        try:
            yield told | _judge(path)
        except (OSError, CapsuleError, ValueError) as error:
            yield told | {"outcome": "passed over", "note": f"it cannot be read: {error}"}


def _judge(path: pathlib.Path) -> dict[str, Any]:
    from agentsdock.testing.replay import read_recording
    from agentsdock.turns.capsule import open_capsule

    recording = read_recording(path)
    if not recording.capsule:
        return {"outcome": "passed over", "note": "it is not a capsule"}
    with open_capsule(path) as capsule:
        for _ in capsule:  # how it ended stands at its end
            pass
        header, trailer = capsule.header, capsule.trailer
    told = {"backend": header.backend, "version": header.version}
    if recording.note is not None or trailer is None:
        return told | {"outcome": "passed over", "note": recording.note}
    before, now = trailer.code, recording.judge().code
    outcome = "same" if before == now else "changed"
    return told | {"outcome": outcome, "before": before, "now": now}
