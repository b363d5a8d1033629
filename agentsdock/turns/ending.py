"""The last events of a run: the ``error`` where it failed, and the terminal event."""

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from agentsdock.guard.contract import Report
from agentsdock.model.codes import Code
from agentsdock.model.usage import Usage, added
from agentsdock.turns.diagnosis import ADVICE, LINE_CHARS, Diagnosis, clean, diagnose, scrub
from agentsdock.turns.verdicts import (
    NOT_BY_THE_CLI,
    TurnEnd,
    TurnFacts,
    Verdict,
    signal_name,
)

SUSPECT = "provider_session_suspect"

_CLI_SAYS_WHY = frozenset(
    {
        Code.NONZERO_EXIT,
        Code.LOGICAL_ERROR,
        Code.MISSING_INIT,
        Code.MISSING_RESULT,
        Code.STARTUP_TIMEOUT,
        Code.IDLE_TIMEOUT,
        Code.APPROVAL_REQUIRED,
        Code.BAD_LINE,
    }
)
"""Failures whose cause is in the CLI's own words, if anywhere."""


def diagnosis(verdict: Verdict, last_words: str, end: TurnEnd) -> Diagnosis:
    """What the CLI's words tell of a failure: those in its stream first, then its stderr."""
    if verdict.code not in _CLI_SAYS_WHY:
        return Diagnosis()
    found = diagnose(last_words)
    return found if found.kind else diagnose(clean(end.stderr_tail))


def message(facts: TurnFacts, verdict: Verdict, no_result: bool, why: Diagnosis) -> str:
    """Why the run failed, in words; a CLI that wrote to stderr alone is quoted first."""
    text = scrub(verdict.message, facts.scrub)
    if verdict.code is Code.NONZERO_EXIT and no_result and why.line:
        text = f"{scrub(why.line, facts.scrub)[:LINE_CHARS]} ({text})"
    return f"{text} {ADVICE[why.kind]}" if why.kind else text


def suspect_fields(facts: TurnFacts, verdict: Verdict, session_id: str | None) -> dict[str, Any]:
    """Told of a failed turn that resumed a session which the CLI did not take up."""
    taken_up = session_id is not None and verdict.code is not Code.SESSION_MISMATCH
    blameless = not verdict.is_error or verdict.code in NOT_BY_THE_CLI
    resumes = facts.resume_id is not None or facts.forks
    return {SUSPECT: True} if resumes and not taken_up and not blameless else {}


def exit_fields(exit_code: int | None) -> dict[str, Any]:
    """``exit_code``, and the signal's name where one killed the CLI."""
    if exit_code is None or exit_code >= 0:
        return {"exit_code": exit_code}
    return {"exit_code": exit_code, "signal": signal_name(-exit_code)}


def teardown_fields(report: Report | None, spawned: bool) -> dict[str, Any]:
    """What the guard proved.  Without its report nothing is proven, unless nothing ever ran."""
    if report is None:
        return {"tree_empty": not spawned, "processes_ended": 0}
    fields: dict[str, Any] = {
        "tree_empty": report.tree_empty,
        "processes_ended": report.processes_ended,
        "elapsed_ms": rounded(report.elapsed_ms, 1),
        "rung": report.rung,
        "cpu_seconds": rounded(report.cpu_seconds, 3),
        "max_rss_bytes": report.max_rss_bytes,
    }
    if report.survivors:
        fields["survivors"] = list(report.survivors)
    if report.guard_lost:
        fields["guard_lost"] = True
    return fields


def rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)


def over_results(before: Usage | None, usage: Usage | None) -> Usage | None:
    """Usage over several results: tokens add up, the cost is a running total already."""
    both = added(before, usage)
    if both is None or usage is None or usage.cost_usd is None:
        return both
    return evolve(both, cost_usd=usage.cost_usd)


def detail_fields(
    cut_line_bytes: int, queries: Iterable[str], noted: Iterable[Code]
) -> dict[str, Any]:
    """What else is worth telling about an ending, in words and as data."""
    words: list[str] = []
    fields: dict[str, Any] = {}
    if cut_line_bytes:
        words.append(f"The last line was cut after {cut_line_bytes} bytes.")
        fields["cut_line_bytes"] = cut_line_bytes
    if kinds := list(queries):
        words.append(f"A question was still open: {', '.join(kinds)}.")
        fields["open_queries"] = kinds
    if codes := [code.value for code in noted]:
        words.append(f"Noted after the verdict: {', '.join(codes)}.")
        fields["also"] = codes
    return {"detail": " ".join(words), **fields} if words else {}
