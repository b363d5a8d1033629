"""Play a recorded stream against the parser and the machine of a real turn, without a process.

The same bytes give the same judgement at any split, and the same events down to their ids.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from attrs import field, frozen

from agentsdock.model.codes import Code
from agentsdock.model.events import Draft
from agentsdock.model.times import iso_at
from agentsdock.streams.neutral import Bounds, ParserSpec
from agentsdock.streams.registry import make_parser
from agentsdock.turns.clocks import Limit
from agentsdock.turns.machine import StopReason, TurnEnd, TurnFacts, TurnMachine
from agentsdock.turns.verdicts import LIMIT_CODES

RUN_ID = f"run_{0:016x}"
SESSION_ID = f"sess_{0:016x}"

_OUTSIDE = frozenset(
    {
        Code.STOPPED,
        Code.SERVER_SHUTDOWN,
        Code.SERVER_RESTART,
        Code.STARTUP_TIMEOUT,
        Code.IDLE_TIMEOUT,
        Code.TURN_TIMEOUT,
        Code.MEMORY_LIMIT,
        Code.STORAGE_FULL,
        Code.INTERNAL_ERROR,
    }
)
"""Endings that no stream shows: somebody or something ended the run."""


@frozen
class Judgement:
    """How the run ended.  ``state`` is succeeded, failed or stopped; ``events`` are the
    timeline as a client would see it, ``segments`` its assistant texts, ``tools`` its calls
    by outcome."""

    state: str
    is_error: bool
    code: str | None
    result_text: str
    session_id: str | None
    segments: list[str]
    tools: dict[str, int]
    events: list[dict[str, Any]] = field(repr=False)


def judge(
    backend: str,
    data: bytes | Iterable[bytes],
    *,
    exit_status: int | None,
    stderr: str = "",
    resume_id: str | None = None,
    chunk: int | None = None,
    ended_by: Code | None = None,
    bounds: Bounds | None = None,
) -> Judgement:
    """The judgement of a stream.

    ``exit_status`` is negative for a signal; None means that the CLI stays open after its last
    byte, whereupon the limit that would have run out ends it at once.  ``ended_by`` is the
    recorded ending of a run that was ended from outside and ends it so again; an ending that
    the stream itself has to show is not taken on trust.  ``chunk`` bytes are fed at a time.
    Raises ValueError for an unknown backend or a chunk that is not positive.
    """
    if chunk is not None and chunk < 1:
        raise ValueError("a chunk has at least one byte")
    bounds = bounds or Bounds()
    machine = TurnMachine(
        TurnFacts(run_id=RUN_ID, backend=backend, resume_id=resume_id, bounds=bounds),
        make_parser(backend, ParserSpec(resume_id, bounds)),
    )
    drafts: list[Draft] = []
    for piece in _pieces(data, chunk):
        drafts += machine.feed(piece)
    outside = ended_by if ended_by in _OUTSIDE else None
    if not machine.decided and (exit_status is None or outside is not None):
        drafts += _end_from_outside(machine, outside)
    if machine.decided:
        machine.exited(None, killed=True)
    else:
        assert exit_status is not None
        drafts += machine.stdout_ended()
        drafts += machine.exited(exit_status, killed=machine.decided)
    drafts += machine.finish(
        TurnEnd(stderr_tail=stderr, stderr_bytes=len(stderr.encode("utf-8", "replace")))
    )
    return _judgement(machine, drafts)


def _pieces(data: bytes | Iterable[bytes], chunk: int | None) -> Iterator[bytes]:
    for piece in [data] if isinstance(data, bytes) else data:
        size = chunk or len(piece) or 1
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def _end_from_outside(machine: TurnMachine, ended_by: Code | None) -> list[Draft]:
    limits = {code: limit for limit, code in LIMIT_CODES.items()}
    match ended_by:
        case None:
            return machine.limit(_due(machine))
        case Code.STOPPED:
            machine.stop(StopReason.USER)
        case Code.SERVER_SHUTDOWN:
            machine.shutdown()
        case code if code in limits:
            return machine.limit(limits[code])
        case code:
            machine.fail(code, f"The recorded run ended with {code}.")
    return []


def _due(machine: TurnMachine) -> Limit:
    """The limit that ends a CLI which says nothing more."""
    if machine.awaiting_exit:
        return Limit.EXIT
    if machine.open_queries:
        return Limit.APPROVAL
    return Limit.IDLE if machine.session_id is not None else Limit.STARTUP


def _judgement(machine: TurnMachine, drafts: list[Draft]) -> Judgement:
    events = [_as_seen(seq, draft) for seq, draft in enumerate(drafts, start=1)]
    terminal = events[-1]
    state = "stopped" if terminal["stopped"] else "failed" if terminal["is_error"] else "succeeded"
    return Judgement(
        state=state,
        is_error=terminal["is_error"],
        code=terminal["code"],
        result_text=terminal["result_text"],
        session_id=machine.session_id,
        segments=[event["text"] for event in events if event["type"] == "assistant_text"],
        tools=terminal["tools"],
        events=events,
    )


def _as_seen(seq: int, draft: Draft) -> dict[str, Any]:
    """An event as it would come out of the store; a recording has no wall clock."""
    event: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(
            {
                "seq": seq,
                "id": f"evt_{seq:016x}",
                "session_id": SESSION_ID,
                "type": draft.type,
                "ts": iso_at(0),
                **draft.payload,
            }
        )
    )
    return event
