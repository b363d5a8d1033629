"""The clocks of a turn: pure, told what happened and what time it is, asked what is due.

Times are seconds on any one monotonic clock.  ``follow`` is told how far the stream has come,
``check`` says what is due, ``next_wake`` when to ask again.
"""

from collections.abc import Mapping
from enum import StrEnum

from attrs import field, frozen

from agentsdock.model.limits import TurnLimits

MAX_WARNINGS = 20
CALL_MARGIN_SECONDS = 60.0
"""What an open call gets on top of the timeout that it declares for itself."""


class Limit(StrEnum):
    """The limits of a turn.  EXIT runs from the result to the CLI's own exit."""

    STARTUP = "startup"
    TURN = "turn"
    APPROVAL = "approval"
    IDLE = "idle"
    EXIT = "exit"


@frozen
class IdleWarning:
    """Silence that may become an ending: the clock that is nearest to its end, and how near."""

    clock: Limit
    budget_seconds: float
    left_seconds: float
    idle_seconds: float
    last_sign: str


@frozen
class Progress:
    """How far a stream has come, as far as a clock needs to know.

    ``calls`` maps each open call to the timeout that it declares, ``results`` counts results,
    and ``resting`` says that only the exit is missing.
    """

    lines: int = 0
    initialised: bool = False
    calls: Mapping[str, float | None] = field(factory=dict)
    queries: frozenset[str] = frozenset()
    results: int = 0
    resting: bool = False
    last_sign: str = "start"


class Clocks:
    """Which limit is due.  One turn, started at ``now``."""

    def __init__(self, limits: TurnLimits, now: float) -> None:
        self._limits = limits
        self._started = now
        self._turn_ends = now + limits.turn_seconds
        self._last_line = now
        self._idle_granted = now
        self._result_at = now
        self._call_ends: dict[str, float] = {}
        self._query_ends: dict[str, float] = {}
        self._seen = Progress()
        self._warned = False
        self._warnings = 0

    @property
    def turn_deadline(self) -> float:
        return self._turn_ends

    @property
    def idle_deadline(self) -> float:
        """When silence ends the turn: later for open calls and grants, never past the turn."""
        latest = max(
            self._last_line + self._limits.idle_seconds,
            self._idle_granted,
            *self._call_ends.values(),
        )
        return min(latest, self._turn_ends)

    def budget(self, clock: Limit) -> float:
        """The whole time that a clock gives as things stand, in seconds."""
        match clock:
            case Limit.STARTUP:
                return self._limits.startup_seconds
            case Limit.TURN:
                return self._turn_ends - self._started
            case Limit.APPROVAL:
                return self._limits.approval_seconds
            case Limit.IDLE:
                return self.idle_deadline - self._last_line
            case Limit.EXIT:
                return self._limits.exit_seconds

    def follow(self, progress: Progress, now: float) -> None:
        """Take in what the stream did up to ``now``."""
        before, self._seen = self._seen, progress
        if progress.lines > before.lines:
            self._last_line = now
            self._warned = False
        if progress.results > before.results:
            self._result_at = now
        self._call_ends = {
            call: self._call_ends.get(call, now + timeout + CALL_MARGIN_SECONDS)
            for call, timeout in progress.calls.items()
            if timeout is not None
        }
        self._query_ends = {
            query: self._query_ends.get(query, now + self._limits.approval_seconds)
            for query in progress.queries
        }

    def extend(self, seconds: float, clock: Limit | None = None) -> None:
        """Grant more time to IDLE (for the silence that is going on), TURN, or both."""
        if clock in (Limit.TURN, None):
            self._turn_ends += seconds
        if clock in (Limit.IDLE, None):
            self._idle_granted = self.idle_deadline + seconds

    def next_wake(self) -> float:
        """The earliest time at which ``check`` may have something to say."""
        deadline = min(self._deadlines().values())
        return min(deadline, self._warning_due) if self._may_warn else deadline

    def check(self, now: float) -> Limit | IdleWarning | None:
        """The limit that ran out first, else a warning that is due, else nothing."""
        deadlines = self._deadlines()
        nearest = min(deadlines, key=deadlines.__getitem__)
        if deadlines[nearest] <= now:
            return nearest
        if self._may_warn and self._warning_due <= now:
            self._warned = True
            self._warnings += 1
            return IdleWarning(
                clock=nearest,
                budget_seconds=self.budget(nearest),
                left_seconds=deadlines[nearest] - now,
                idle_seconds=now - self._last_line,
                last_sign=self._seen.last_sign,
            )
        return None

    @property
    def _may_warn(self) -> bool:
        return not (self._warned or self._seen.resting) and self._warnings < MAX_WARNINGS

    @property
    def _warning_due(self) -> float:
        return self._last_line + self._limits.warn_seconds

    def _deadlines(self) -> dict[Limit, float]:
        """Of the clocks that run now; in case of a tie the first one counts."""
        if self._seen.resting:
            return {Limit.EXIT: self._result_at + self._limits.exit_seconds}
        running: dict[Limit, float] = {}
        if not self._seen.initialised:
            running[Limit.STARTUP] = self._started + self._limits.startup_seconds
        running[Limit.TURN] = self._turn_ends
        if self._query_ends:
            running[Limit.APPROVAL] = min(self._query_ends.values())
        running[Limit.IDLE] = self.idle_deadline
        return running
