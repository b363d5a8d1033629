"""What must hold of the events of a chat, whoever saw them.

Every event once and in order; each run begins, has exactly one terminal event, and nothing of
it follows; a connection asks for what comes after the last event that it was given.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field, frozen

Json = dict[str, Any]

TERMINAL_TYPES = frozenset({"turn_finished", "turn_stopped"})
CHAT_GONE = 4404
ENVELOPE = {"id": str, "session_id": str, "type": str, "ts": str}


@frozen
class Violation:
    """A broken rule.  ``rule`` is one of the names in this module, ``seq`` where it showed."""

    rule: str
    message: str
    seq: int | None = None

    def __str__(self) -> str:
        at = f" (seq {self.seq})" if self.seq is not None else ""
        return f"{self.rule}: {self.message}{at}"


@define
class Timeline:
    """The events of one chat as somebody sees them, from a cursor on.

    ``see`` each as it comes, then read ``violations``, or ``ended`` where nothing runs any more.
    """

    after: int = 0
    events: list[Json] = field(factory=list)
    violations: list[Violation] = field(factory=list)
    _ids: set[str] = field(factory=set)
    _begun: set[str] = field(factory=set)
    _over: set[str] = field(factory=set)

    @property
    def last(self) -> int:
        return int(self.events[-1]["seq"]) if self.events else self.after

    @property
    def open_runs(self) -> set[str]:
        """Runs that began here and have no terminal event."""
        return self._begun - self._over

    def see(self, event: Json) -> None:
        seq = event.get("seq")
        if type(seq) is not int:
            self._broken("envelope", f"an event without a whole number as seq: {event}")
            return
        self._check_place(seq)
        self._check_envelope(event, seq)
        self._check_run(event, seq)
        if seq > self.last:
            self.events.append(event)

    def ended(self) -> list[Violation]:
        """All that was broken, taking it that nothing runs and nothing more will come."""
        missing = [
            Violation("terminal", f"{run} has no terminal event") for run in sorted(self.open_runs)
        ]
        return [*self.violations, *missing]

    def _check_place(self, seq: int) -> None:
        expected = self.last + 1
        if seq > expected:
            missing = f"{expected}" if seq == expected + 1 else f"{expected} to {seq - 1}"
            self._broken("lost", f"{missing} did not come before {seq}", seq)
        elif seq < expected:
            seen = any(event["seq"] == seq for event in self.events)
            if seen:
                self._broken("doubled", f"{seq} came again after {self.last}", seq)
            else:
                self._broken("order", f"{seq} came after {self.last}", seq)

    def _check_envelope(self, event: Json, seq: int) -> None:
        for name, kind in ENVELOPE.items():
            if not isinstance(event.get(name), kind):
                self._broken("envelope", f"{name} is missing or no {kind.__name__}", seq)
        told = event.get("id")
        if isinstance(told, str) and seq > self.last:
            if told in self._ids:
                self._broken("doubled", f"the id {told} was used before", seq)
            self._ids.add(told)

    def _check_run(self, event: Json, seq: int) -> None:
        kind, run = event.get("type"), event.get("run_id")
        if not isinstance(run, str) or seq <= self.last:
            return
        if run in self._over:
            rule = "terminal" if kind in TERMINAL_TYPES else "order"
            self._broken(rule, f"{kind} follows the end of {run}", seq)
        elif kind == "turn_started":
            if run in self._begun:
                self._broken("order", f"{run} starts twice", seq)
            self._begun.add(run)
        elif run not in self._begun and self.after == 0 and not event.get("imported"):
            self._broken("order", f"{kind} of {run}, which has not started", seq)
        if kind in TERMINAL_TYPES:
            self._begun.add(run)
            self._over.add(run)

    def _broken(self, rule: str, message: str, seq: int | None = None) -> None:
        self.violations.append(Violation(rule, message, seq))


def check_seen(seen: Iterable[Json], truth: Sequence[Json], after: int = 0) -> list[Violation]:
    """Whether a client's events are the server's, from ``after`` on.

    ``truth`` is the whole chat as the server tells it now.  A client may leave out raw events,
    which it need not be sent.
    """
    timeline = Timeline(after)
    wanted = {event["seq"]: event for event in truth if event["seq"] > after}
    shown: set[int] = set()
    broken: list[Violation] = []
    for event in seen:
        seq = event.get("seq")
        for missed in range(timeline.last + 1, seq if type(seq) is int else 0):
            if wanted.get(missed, {}).get("type") == "raw_event":
                timeline.see(wanted[missed])
                shown.add(missed)
        timeline.see(event)
        if type(seq) is int:
            shown.add(seq)
            if seq not in wanted:
                broken.append(Violation("invented", "the server has no such event", seq))
            elif event != wanted[seq]:
                broken.append(Violation("changed", "it is not as the server tells it", seq))
    unseen = [
        Violation("lost", f"{event['type']} was never seen", seq)
        for seq, event in wanted.items()
        if seq > timeline.last and event["type"] != "raw_event"
    ]
    return [*timeline.violations, *broken, *unseen]


@frozen
class Connection:
    """One events socket: the cursor that it asked with, and the last seq that it was given whole
    (None if none).  ``lossy`` says that what was sent last may not have arrived, ``close_code``
    how the server closed it, if it did."""

    after: int
    last: int | None
    lossy: bool = False
    close_code: int | None = None


def check_cursors(connections: Sequence[Connection]) -> list[Violation]:
    """Whether a client asks each time for what follows the last event that it has.

    It must not ask again for a chat that the server said is gone.
    """
    broken = []
    has: int | None = None
    lossy = gone = False
    for number, connection in enumerate(connections, 1):
        if gone:
            message = f"connection {number} asks for a chat that was closed with {CHAT_GONE}"
            broken.append(Violation("close", message))
        if has is not None and connection.after > has:
            message = f"connection {number} asks after {connection.after}, but had {has}"
            broken.append(Violation("lost", message))
        elif has is not None and connection.after < has and not lossy:
            message = f"connection {number} asks after {connection.after} again, and had {has}"
            broken.append(Violation("doubled", message))
        has = connection.last if connection.last is not None else max(has or 0, connection.after)
        lossy = connection.lossy
        gone = connection.close_code == CHAT_GONE
    return broken
