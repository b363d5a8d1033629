"""How a turn can end, and what is known of it beforehand and afterwards."""

import signal
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from agentsdock.guard.contract import Report
from agentsdock.model.codes import Code
from agentsdock.model.usage import Usage
from agentsdock.streams.neutral import Bounds, Fault
from agentsdock.turns.clocks import Limit

CLI_NAMES = {"cursor": "Cursor", "claude": "Claude Code", "codex": "Codex"}

STOPS = frozenset({Code.STOPPED, Code.SERVER_SHUTDOWN, Code.SERVER_RESTART})

LIMIT_CODES = {
    Limit.STARTUP: Code.STARTUP_TIMEOUT,
    Limit.TURN: Code.TURN_TIMEOUT,
    Limit.APPROVAL: Code.APPROVAL_REQUIRED,
    Limit.IDLE: Code.IDLE_TIMEOUT,
}
"""EXIT has none: a result that waits for its exit is a success, or the failure it was."""

SHOWS_OWN_EXIT = frozenset(
    {
        None,
        Code.LOGICAL_ERROR,
        Code.MISSING_INIT,
        Code.MISSING_RESULT,
        Code.NONZERO_EXIT,
        Code.APPROVAL_REQUIRED,
    }
)
"""Endings that carry the CLI's exit code where it left by itself; the others carry null."""


NOT_BY_THE_CLI = frozenset(
    {
        Code.SPAWN_FAILED,
        Code.RUNTIME_UNAVAILABLE,
        Code.PROMPT_TOO_LARGE,
        Code.STORAGE_FULL,
        Code.INTERNAL_ERROR,
    }
)
"""Failures that say nothing of whether the CLI still knows a session."""


class StopReason(StrEnum):
    USER = "user"
    SUPERSEDED = "superseded"
    DELETED = "deleted"


@frozen
class Verdict:
    """One ending.  ``code`` of None is a success; ``message`` is for a person."""

    code: Code | None
    message: str = ""

    @property
    def stopped(self) -> bool:
        return self.code in STOPS

    @property
    def is_error(self) -> bool:
        return self.code is not None and not self.stopped


@frozen
class TurnFacts:
    """What is known of a turn before it starts.

    ``meta`` is repeated in every event; ``scrub`` holds what must never be shown (the composed
    prompt, tokens, keys).  ``forks`` is whether it begins with a copy of another session,
    ``used_before`` what the CLI counts as usage though earlier turns used it.
    """

    run_id: str
    backend: str
    resume_id: str | None = None
    forks: bool = False
    used_before: Usage | None = None
    meta: Mapping[str, Any] = field(factory=dict)
    bounds: Bounds = field(factory=Bounds)
    scrub: tuple[str, ...] = field(default=(), repr=False)

    @property
    def cli(self) -> str:
        return CLI_NAMES.get(self.backend, self.backend)


@frozen
class TurnEnd:
    """What is known when the tree is gone.  ``report`` is None where nothing ever ran.

    ``diff`` are the fields of what the turn changed; ``no_diff`` says why that is not known.
    """

    report: Report | None = None
    stderr_tail: str = field(default="", repr=False)
    stderr_bytes: int = 0
    wall_seconds: float | None = None
    startup_ms: float | None = None
    diff: Mapping[str, Any] | None = None
    no_diff: str | None = None


def of_limit(cli: str, limit: Limit, seconds: float | None, queries: str) -> Verdict:
    within = "" if seconds is None else f" within {seconds:g} s"
    lasting = "" if seconds is None else f" of {seconds:g} s"
    wording = {
        Limit.STARTUP: f"{cli} did not initialize{within}.",
        Limit.TURN: f"{cli} reached the absolute turn limit{lasting}.",
        Limit.APPROVAL: f"{cli} asked for approval ({queries}) and got no answer{within}.",
        Limit.IDLE: f"{cli} produced no output for the whole idle limit{lasting}.",
    }
    return Verdict(LIMIT_CODES[limit], wording[limit])


def of_fault(cli: str, fault: Fault) -> Verdict:
    return Verdict(fault.code, f"{cli}'s output could not be accepted: {fault.message}.")


def of_error_result(cli: str, said: str) -> Verdict:
    why = f": {said}" if said else " and did not say which."
    return Verdict(Code.LOGICAL_ERROR, f"{cli} reported an error{why}")


def of_missing_init(cli: str) -> Verdict:
    return Verdict(Code.MISSING_INIT, f"{cli} did not initialize a session.")


def of_exit_after_result(cli: str, exit_code: int) -> Verdict:
    if exit_code == 0:
        return Verdict(None)
    return Verdict(Code.NONZERO_EXIT, f"{cli} {exit_words(exit_code)} after its result.")


def of_exit(cli: str, exit_code: int, queries: str, initialised: bool) -> Verdict:
    """An exit without a result; the order of the reasons is part of the contract."""
    if queries:
        return Verdict(
            Code.APPROVAL_REQUIRED, f"{cli} asked for approval ({queries}) and left without it."
        )
    if exit_code:
        return Verdict(Code.NONZERO_EXIT, f"{cli} {exit_words(exit_code)} without a result.")
    if not initialised:
        return of_missing_init(cli)
    return Verdict(Code.MISSING_RESULT, f"{cli} exited without a terminal result.")


def exit_words(exit_code: int) -> str:
    if exit_code < 0:
        return f"was killed by {signal_name(-exit_code)}"
    return f"exited with status {exit_code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
