"""The turn as a pure state machine: inputs in, timeline drafts out, exactly one ending.

::

    running --result--> resting --exit, end of stdout--> decided --finish--> finished
       |  <--resumed--     |                                ^
       +-- fault, limit, stop, shutdown, failure, exit -----+

The first verdict is latched, later ones are only noted.  A successful result is no verdict yet:
it waits for the CLI's exit, which may still contradict it.  An erroneous result is one, but the
CLI is left to exit by itself all the same.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from agentsdock.model.codes import Code
from agentsdock.model.events import Draft
from agentsdock.model.usage import Usage, since, usage_fields
from agentsdock.streams import bounding
from agentsdock.streams.neutral import (
    Drift,
    Fault,
    Init,
    Notice,
    QueryAnswered,
    QueryOpened,
    Result,
    Resumed,
    StreamEvent,
    StreamFacts,
    StreamParser,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)
from agentsdock.turns import ending, verdicts
from agentsdock.turns.clocks import IdleWarning, Limit, Progress
from agentsdock.turns.diagnosis import clean, shown_tail
from agentsdock.turns.projection import Projection
from agentsdock.turns.verdicts import StopReason, TurnEnd, TurnFacts, Verdict

__all__ = ["StopReason", "TurnEnd", "TurnFacts", "TurnMachine", "Verdict"]

MAX_NOTED = 8
MAX_DRIFT_NAMES = 200
MAX_QUERIES = 64
MESSAGE_CHARS = 1000

_TIMELINE_LOST = frozenset({Code.STORAGE_FULL, Code.INTERNAL_ERROR})
"""After these the timeline may lack what led to a result, so it cannot count as a success."""


class TurnMachine:
    """One turn.  No input raises for what the CLI does; once decided, the stream has no effect.

    ``decided`` means that the process is to be ended now, or has ended: everything but a result
    that still waits for its exit.  ``session_id`` is that of a valid init, ``open_queries`` holds
    the kind of each unanswered question by its id, ``drift`` counts (kind, name).
    """

    def __init__(self, facts: TurnFacts, parser: StreamParser) -> None:
        self.turn = facts
        self.verdict: Verdict | None = None
        self.decided = False
        self.session_id: str | None = None
        self.open_queries: dict[str, str] = {}
        self.drift: Counter[tuple[str, str]] = Counter()
        self._parser = parser
        self._projection = Projection(facts)
        self._results = 0
        self._text = ""
        self.told_usage: Usage | None = None
        """As the CLI counts it."""
        self._resting = False
        self._overrun = False
        self._noted: list[Code] = []
        self._stop_meta: dict[str, Any] = {}
        self._faulted = False
        self._last_words = ""
        self._last_sign = "start"
        self._spawned = False
        self._stdout_ended = False
        self._exit: tuple[int | None, bool] | None = None
        self._finished = False
        self._takers: dict[type, Callable[[Any], list[Draft]]] = {
            Init: self._on_init,
            Text: lambda event: [self._projection.text(event)],
            Thought: lambda event: [self._projection.thought(event)],
            ToolStarted: lambda event: [self._projection.tool_started(event)],
            ToolFinished: lambda event: [self._projection.tool_finished(event)],
            QueryOpened: self._on_query,
            QueryAnswered: self._on_answer,
            Notice: lambda event: [],
            Result: self._on_result,
            Resumed: lambda event: [],
            Fault: self._on_fault,
        }

    # What the runner asks.

    @property
    def awaiting_exit(self) -> bool:
        """A result is there and only the CLI's own exit is missing."""
        return self._resting and not self.decided

    @property
    def result_seen(self) -> bool:
        return self._results > 0

    @property
    def usage(self) -> Usage | None:
        """What the turn itself has used."""
        return since(self.turn.used_before, self.told_usage)

    @property
    def open_calls(self) -> dict[str, float | None]:
        return self._projection.open_calls

    @property
    def edited(self) -> tuple[str, ...]:
        """Files that the agent's edit tools have named so far."""
        return self._projection.edited

    @property
    def facts(self) -> StreamFacts:
        return self._parser.facts

    @property
    def succeeded(self) -> bool:
        """Whether the run ended as a success; false until ``finish``."""
        return self._finished and self.verdict is not None and self.verdict.code is None

    @property
    def progress(self) -> Progress:
        """What the clocks need to know."""
        return Progress(
            lines=self._parser.facts.lines,
            initialised=self.session_id is not None or self.result_seen,
            calls=self.open_calls,
            queries=frozenset(self.open_queries),
            results=self._results,
            resting=self.awaiting_exit,
            last_sign=self._last_sign,
        )

    # Inputs.

    def spawned(self, argv_shown: tuple[str, ...], cwd: str) -> list[Draft]:
        """There is a process.  ``argv_shown`` has no prompt and no secret in it."""
        self._spawned = True
        argv = [clean(argument) for argument in argv_shown]
        return [
            self._projection.draft(
                "process_started", backend=self.turn.backend, argv=argv, cwd=clean(cwd)
            )
        ]

    def feed(self, data: bytes) -> list[Draft]:
        """Bytes of stdout.  Once decided they are dropped: drain, but expect nothing."""
        if self.decided:
            return []
        lines = self._parser.facts.lines
        events = self._parser.feed(data)
        if events:
            self._last_sign = _sign(events[-1])
        elif self._parser.facts.lines > lines:
            self._last_sign = "line"
        return self._take(events)

    def stdout_ended(self) -> list[Draft]:
        """Nothing more will be read, be it the end of file or of the time to drain."""
        self._stdout_ended = True
        drafts = [] if self.decided else self._take(self._parser.end())
        self._settle()
        return drafts

    def exited(self, exit_code: int | None, killed: bool) -> list[Draft]:
        """The CLI has gone.  ``killed``: we ended it; None without it: its status was lost."""
        if self._exit is None:
            self._exit = (exit_code, killed)
            self._settle()
        return self._flush()

    def limit(self, limit: Limit, seconds: float | None = None) -> list[Draft]:
        """A clock of ``seconds`` ran out.  EXIT means nothing unless a result is waiting."""
        if self.awaiting_exit:
            self._end_waiting(verdicts.LIMIT_CODES.get(limit))
        elif limit is not Limit.EXIT:
            kinds = ", ".join(self.open_queries.values())
            self._latch(verdicts.of_limit(self.turn.cli, limit, seconds, kinds))
        return self._flush()

    def warn_idle(self, warning: IdleWarning) -> list[Draft]:
        return [
            self._projection.draft(
                "idle_warning",
                idle_seconds=round(warning.idle_seconds, 1),
                clock=warning.clock.value,
                budget_seconds=round(warning.budget_seconds, 1),
                left_seconds=round(warning.left_seconds, 1),
                last_sign=warning.last_sign,
            )
        ]

    def stop(self, reason: StopReason, **meta: Any) -> None:
        """Someone wants the turn to end; ``meta`` goes into the terminal event if it does so."""
        if self.verdict is None and not self._resting:
            self._stop_meta = {"stop_reason": reason.value, **meta}
        self._stop(Verdict(Code.STOPPED))

    def shutdown(self) -> None:
        """The server is going down."""
        self._stop(Verdict(Code.SERVER_SHUTDOWN))

    def fail(self, code: Code, message: str) -> None:
        """The turn cannot go on for a cause of ours or of the host.

        A success whose events could not be kept is none, even if it was decided already.
        """
        if self.verdict == Verdict(None) and code in _TIMELINE_LOST and not self._finished:
            self.verdict = None
        if self.awaiting_exit and self.verdict is None and code not in _TIMELINE_LOST:
            self._end_waiting(code)
        else:
            self._latch(Verdict(code, clean(message)))

    def finish(self, end: TurnEnd) -> list[Draft]:
        """The last events, the terminal one at the end.  Raises RuntimeError the second time."""
        if self._finished:
            raise RuntimeError("this turn has its terminal event already")
        if end.report is not None:
            self.exited(end.report.exit_code, end.report.killed)
        drafts = [] if self.decided else self.stdout_ended()
        if not self.decided:
            self._end_unseen("The turn was ended without a verdict.")
        drafts += self._flush()
        drafts += self._projection.close_calls()
        if end.diff is not None:
            backend = self.turn.backend
            drafts.append(self._projection.draft("code_diff", backend=backend, **end.diff))
        drafts += self._last_events(end)
        self._finished = True
        return drafts

    # The stream.

    def _take(self, events: list[StreamEvent]) -> list[Draft]:
        drafts: list[Draft] = []
        for event in events:
            if isinstance(event, Drift):
                self._count_drift(event)
            elif not self._resting or isinstance(event, Resumed):
                self._resting = False
                drafts.extend(self._takers[type(event)](event))
        return drafts

    def _flush(self) -> list[Draft]:
        """What the CLI had begun to say when the verdict fell."""
        if not self.decided or self._resting:
            return []
        return self._take(
            [event for event in self._parser.end() if isinstance(event, Text | Thought)]
        )

    def _count_drift(self, event: Drift) -> None:
        key = (event.kind, bounding.name(event.name))
        if key in self.drift or len(self.drift) < MAX_DRIFT_NAMES:
            self.drift[key] += 1

    def _on_init(self, event: Init) -> list[Draft]:
        if self.session_id is not None:
            return []
        self.session_id = event.session_id
        return [self._projection.session(event)]

    def _on_query(self, event: QueryOpened) -> list[Draft]:
        if len(self.open_queries) < MAX_QUERIES:
            self.open_queries[event.query_id] = bounding.name(clean(event.kind))
        return []

    def _on_answer(self, event: QueryAnswered) -> list[Draft]:
        self.open_queries.pop(event.query_id, None)
        return []

    def _on_result(self, event: Result) -> list[Draft]:
        self._resting = True
        self._results += 1
        self.told_usage = ending.over_results(self.told_usage, event.usage)
        if event.is_error:
            said = bounding.head(clean(event.message or ""), MESSAGE_CHARS).strip()
            self._last_words = self._last_words or said
            self._latch(verdicts.of_error_result(self.turn.cli, said), exit_counts=True)
        elif self.session_id is None:
            self._latch(verdicts.of_missing_init(self.turn.cli))
        self._text = "" if event.is_error else event.text
        return []

    def _on_fault(self, event: Fault) -> list[Draft]:
        self._faulted = True
        self._latch(verdicts.of_fault(self.turn.cli, event))
        if event.line is None:
            return []
        self._last_words = self._last_words or clean(event.line.prose or "")
        return [self._projection.unusable(event.line)]

    # Verdicts.

    def _latch(self, verdict: Verdict, *, exit_counts: bool = False) -> None:
        """Set the verdict, or note a later one.  The process ends now unless its exit counts."""
        if self.verdict is None:
            self.verdict = verdict
        else:
            self._note(verdict.code)
        if not exit_counts:
            self.decided = True

    def _note(self, code: Code | None) -> None:
        known = self.verdict is not None and code is self.verdict.code
        if code is not None and not known and code not in self._noted:
            self._noted = [*self._noted, code][:MAX_NOTED]

    def _stop(self, verdict: Verdict) -> None:
        if self.awaiting_exit:
            self._end_waiting(verdict.code)
        else:
            self._latch(verdict)

    def _end_waiting(self, cause: Code | None) -> None:
        """A result has waited for the exit until ``cause``; the result stands, unless the CLI
        has left meanwhile and its exit contradicts it."""
        exit_code, killed = self._exit or (None, True)
        if self.verdict is None and exit_code is not None and not killed:
            self.verdict = verdicts.of_exit_after_result(self.turn.cli, exit_code)
        elif self.verdict is None:
            self.verdict = Verdict(None)
            self._overrun = True
        self._note(cause)
        self.decided = True

    def _end_unseen(self, message: str) -> None:
        """The CLI has gone, and nobody saw how it would have ended by itself."""
        if self.awaiting_exit:
            self._end_waiting(None)
        else:
            self._latch(Verdict(Code.INTERNAL_ERROR, message))

    def _settle(self) -> None:
        """Decide by the exit, once all that the CLI wrote has been seen as well."""
        if self.decided or self._exit is None or not self._stdout_ended:
            return
        exit_code, killed = self._exit
        if killed:
            self._end_unseen("The CLI was ended without a verdict.")
        elif exit_code is None:
            self._end_unseen("The process guard was lost, and the CLI's exit status with it.")
        elif self.result_seen:
            self._latch(verdicts.of_exit_after_result(self.turn.cli, exit_code))
        else:
            kinds = ", ".join(self.open_queries.values())
            self._latch(
                verdicts.of_exit(self.turn.cli, exit_code, kinds, self.session_id is not None)
            )

    @property
    def _exit_code(self) -> int | None:
        """The CLI's own exit code where the ending shows one."""
        exit_code, killed = self._exit or (None, True)
        if self.verdict is None or self.verdict.code not in verdicts.SHOWS_OWN_EXIT or killed:
            return None
        return None if self._overrun and exit_code else exit_code

    def _last_events(self, end: TurnEnd) -> list[Draft]:
        verdict = self.verdict
        assert verdict is not None
        exit_code = self._exit_code
        why = ending.diagnosis(verdict, self._last_words, end)
        failure: dict[str, Any] = {}
        if verdict.is_error:
            failure["message"] = ending.message(self.turn, verdict, not self.result_seen, why)
            if why.kind:
                failure["diagnosis"] = why.kind.value
            failure |= ending.suspect_fields(self.turn, verdict, self.session_id)
        common = {
            "backend": self.turn.backend,
            "code": verdict.code,
            **failure,
            **ending.exit_fields(exit_code),
            **ending.detail_fields(
                0 if self._faulted else self._parser.facts.cut_line_bytes,
                self.open_queries.values(),
                self._noted,
            ),
        }
        drafts = []
        if verdict.is_error:
            tail = shown_tail(end.stderr_tail, self.turn.scrub)
            drafts.append(
                self._projection.draft(
                    "error", **common, stderr_tail=tail, stderr_bytes=end.stderr_bytes
                )
            )
        text = self._text if verdict.code is None else ""
        terminal = {
            "result_text": bounding.head(text, self.turn.bounds.accumulated_text_chars),
            "stopped": verdict.stopped,
            "is_error": verdict.is_error,
            **(self._stop_meta if verdict.code is Code.STOPPED else {}),
            "tools": self._projection.tools,
            **usage_fields(self.usage),
            **ending.teardown_fields(end.report, self._spawned),
            "wall_seconds": ending.rounded(end.wall_seconds, 3),
            "startup_ms": ending.rounded(end.startup_ms, 1),
        }
        if self.session_id is not None:
            terminal["provider_session_id"] = self.session_id
        if end.no_diff is not None:
            terminal["code_diff_missing"] = end.no_diff
        if self._overrun and exit_code is None:
            terminal["exit_overrun"] = True
        return [*drafts, self._projection.draft("turn_finished", **common, **terminal)]


def _sign(event: StreamEvent) -> str:
    """A sign of life, named for the warning that tells what came last."""
    match event:
        case ToolStarted() | ToolFinished():
            return f"{type(event).__name__} {bounding.name(event.name)}"
        case Notice():
            return f"Notice {bounding.name(event.kind)}"
        case _:
            return type(event).__name__
