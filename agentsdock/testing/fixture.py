"""A run's recording as a fixture: scrubbed, checked, and judged as the run was.

A fixture is ``NAME.jsonl``, what the CLI wrote to stdout, and ``NAME.json``, what else there is
to know of it and how it is judged.
"""

import getpass
import os
import pathlib
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from attrs import frozen

from agentsdock.testing.replay import FACTS_KEY, read_recording
from agentsdock.testing.scrubbing import Leak, Scrubber, dashed, find_leaks, is_telling
from agentsdock.turns.capsule import open_capsule
from agentsdock.turns.judge import Judgement

MOST_BYTES = 16 * 1024 * 1024
"""A fixture is read by people and kept in repositories."""
LEAST_SECRET = 8
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)\Z", re.IGNORECASE)
_CWD = re.compile(rb'"(?:cwd|workdir)"\s*:\s*("(?:[^"\\]|\\.)*")')


class FixtureError(Exception):
    """The recording does not become a fixture; the message says why and what to do."""


@frozen
class Fixture:
    """``facts`` are what ``NAME.json`` holds; ``replaced`` counts the texts that were."""

    stream: bytes
    facts: Mapping[str, Any]
    replaced: int


def make_fixture(capsule: pathlib.Path, private: Mapping[str, str]) -> Fixture:
    """The scrubbed recording.  ``private`` are texts to be replaced beside what is recognised.

    Raises FixtureError, OSError and CapsuleError.
    """
    recording = read_recording(capsule)
    if not recording.capsule:
        raise FixtureError("this is a bare stream: only a capsule knows how its run ended")
    if recording.note is not None:
        raise FixtureError(recording.note)
    with open_capsule(capsule) as reader:
        version = reader.header.version
        stream = b""
        for _, data in reader:
            stream += data
            if len(stream) > MOST_BYTES:
                raise FixtureError(f"the recording has more than {MOST_BYTES} bytes")
    scrubber = Scrubber({**private, **_folders(stream)})
    scrubbed = scrubber.stream(stream)
    judgement = recording.judge()
    facts = {
        FACTS_KEY: 1,
        "backend": recording.backend,
        "version": version,
        "exit_status": recording.exit_status,
        "ended_by": recording.ended_by,
        "resume_id": recording.resume_id and scrubber.text(recording.resume_id),
        "stderr": scrubber.text(recording.stderr),
        "expected": {
            "state": judgement.state,
            "code": judgement.code,
            "tools": judgement.tools,
            "events": [event["type"] for event in judgement.events],
            "result_text": scrubber.text(judgement.result_text),
        },
    }
    text = msgspec.json.format(msgspec.json.encode(facts), indent=1)
    known = {**private, **scrubber.replaced}
    _refuse_leaks(find_leaks(scrubbed, known), "its stream")
    _refuse_leaks(find_leaks(text, known), "its facts")
    return Fixture(scrubbed, facts, len(scrubber.replaced))


def write_fixture(fixture: Fixture, folder: pathlib.Path, name: str) -> pathlib.Path:
    """Write both files and prove that they are judged as the run was; the stream's path.

    Nothing is overwritten.  Raises FixtureError and OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    facts = path.with_suffix(".json")
    for one in (path, facts):
        if one.exists():
            raise FixtureError(f"{one} is there already: choose another --name")
    path.write_bytes(fixture.stream)
    facts.write_bytes(msgspec.json.format(msgspec.json.encode(fixture.facts), indent=1) + b"\n")
    judgement = read_recording(path).judge()
    told = differences(fixture.facts["expected"], judgement)
    if told:
        path.unlink()
        facts.unlink()
        raise FixtureError(
            f"the scrubbed recording is judged otherwise than the run was ({', '.join(told)}): "
            "a text was replaced that the CLI's stream depends on"
        )
    return path


def differences(expected: Mapping[str, Any], judgement: Judgement) -> list[str]:
    """Names of what a judgement has otherwise than a fixture's facts expect."""
    found = {
        "state": judgement.state,
        "code": judgement.code,
        "tools": judgement.tools,
        "events": [event["type"] for event in judgement.events],
        "result_text": judgement.result_text,
    }
    return [name for name, value in found.items() if expected.get(name) != value]


def of_this_host(environ: Mapping[str, str], state_dir: pathlib.Path) -> dict[str, str]:
    """What is private here: home, account, host, the state folder, and secrets of the settings."""
    paths = {
        str(state_dir): "/state",
        os.path.expanduser("~"): "/home/user",
        **({environ["HOME"]: "/home/user"} if environ.get("HOME", "").count("/") else {}),
    }
    names = {socket.gethostname(): "host", _account(): "user"}
    found = _with_dashes(paths) | {name: to for name, to in names.items() if is_telling(name)}
    secrets = [value for name, value in environ.items() if _SECRET_NAME.search(name)]
    token = state_dir / "token"
    if token.is_file():
        secrets.append(token.read_text(encoding="utf-8", errors="replace").strip())
    for number, secret in enumerate(sorted(set(secrets)), start=101):
        if len(secret) >= LEAST_SECRET:
            found[secret] = f"secret-{number}"
    return found


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _folders(stream: bytes) -> dict[str, str]:
    """The folders that the CLI says it worked in, the first as the workspace."""
    told: dict[str, str] = {}
    for literal in _CWD.findall(stream):
        try:
            folder = msgspec.json.decode(literal, type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if folder.count("/") > 1:
            told.setdefault(folder, "/workspace" if not told else f"/workspace-{len(told) + 1}")
    return _with_dashes(told)


def _with_dashes(paths: Mapping[str, str]) -> dict[str, str]:
    found = {path: to for path, to in paths.items() if len(path) > 1}
    return {
        **{dashed(path): dashed(to) for path, to in found.items() if path.count("/") > 1},
        **found,
    }


def _refuse_leaks(leaks: Iterable[Leak], where: str) -> None:
    lines = [str(leak) for leak in leaks]
    if lines:
        more = f" and {len(lines) - 8} more" if len(lines) > 8 else ""
        raise FixtureError(
            f"nothing was written: {where} would still tell something private: "
            f"{'; '.join(lines[:8])}{more}. Name it with --private, or record another run."
        )
