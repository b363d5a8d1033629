"""How long a turn may take in each of its phases.  Seconds, unless a name says bytes."""

from attrs import frozen


@frozen
class TurnLimits:
    """Budgets of one turn's clocks, and of its teardown.

    ``idle_warn_seconds`` of None is the smaller of 300 and half the idle limit.
    ``drain_seconds`` is how long in all to wait for each pipe of an ended tree.
    """

    startup_seconds: float = 120
    turn_seconds: float = 21_600
    idle_seconds: float = 900
    idle_warn_seconds: float | None = None
    exit_seconds: float = 30
    approval_seconds: float = 60
    stderr_tail_bytes: int = 65_536
    stop_grace_seconds: float = 2.0
    teardown_grace_seconds: float = 1.5
    drain_seconds: float = 2.0

    @property
    def warn_seconds(self) -> float:
        if self.idle_warn_seconds is not None:
            return self.idle_warn_seconds
        return min(300.0, self.idle_seconds / 2)
