"""A semantic page: whole landmarks instead of a number of events.

Of each landmark a few events are chosen, so that a page of long turns is no larger than one of
short ones; the rest is read by ``trace`` when somebody opens the turn.
"""

from collections.abc import Sequence
from typing import Any

from attrs import define, field, frozen

from agentsdock.model.events import TRACE_TYPES
from agentsdock.timeline.kinds import ESSENTIAL_TYPES, HIDDEN_TYPES
from agentsdock.timeline.landmarks import Landmark, Outline

EVENTS = 4
JOB_EVENTS = 8
ESSENTIALS = 32
OVERFLOW = 128
"""How many essentials, and how many trace anchors, a page may hold beyond its budget."""

Event = dict[str, Any]


@frozen
class Window:
    """The landmarks of one page, and what lies around it."""

    landmarks: tuple[Landmark, ...]
    total: int
    omitted_before: int
    omitted_after: int

    def shortened(self, count: int, *, tail: bool) -> "Window":
        """With ``count`` landmarks only: the newest of a tail page, else the oldest."""
        left = len(self.landmarks) - count
        return Window(
            self.landmarks[left:] if tail else self.landmarks[:count],
            self.total,
            self.omitted_before + left * tail,
            self.omitted_after + left * (not tail),
        )

    @property
    def next_before(self) -> int | None:
        return self.landmarks[0].anchor if self.landmarks and self.omitted_before else None


def window(
    outline: Outline, *, after: int = 0, before: int | None = None, limit: int, tail: bool
) -> Window:
    """The newest (or oldest) landmarks whose anchors lie between ``after`` and ``before``."""
    found = [
        landmark
        for landmark in outline
        if landmark.anchor > after and (before is None or landmark.anchor < before)
    ]
    chosen = found[-limit:] if tail else found[:limit]
    left = len(found) - len(chosen)
    return Window(tuple(chosen), len(found), left if tail else 0, 0 if tail else left)


@define
class _Choice:
    """What is taken of one landmark, best first."""

    budget: int
    primary: Event | None
    start: Event | None
    essentials: list[Event]
    trace: Event | None
    others: list[Event]
    taken: dict[int, Event] = field(factory=dict)

    def take(self, event: Event | None) -> bool:
        if event is None or event["seq"] in self.taken:
            return False
        self.taken[event["seq"]] = event
        return True

    @property
    def room(self) -> bool:
        return len(self.taken) < self.budget


def select(page: Sequence[tuple[Landmark, Sequence[Event]]]) -> list[Event]:
    """The events of a page, from what was read of each of its landmarks, in order."""
    choices = [_choice(landmark, events) for landmark, events in page]
    summaries = [
        landmark.job.summary(landmark.key.removeprefix("job:"))
        for landmark, _ in page
        if landmark.job is not None
    ]
    for choice in choices:
        choice.take(choice.primary)
        choice.take(choice.start)
    _take_essentials(choices)
    _take_traces(choices)
    for choice in choices:
        _fill(choice)
    events = {event["id"]: event for choice in choices for event in choice.taken.values()}
    return sorted([*events.values(), *summaries], key=lambda event: event["seq"])


def _choice(landmark: Landmark, events: Sequence[Event]) -> _Choice:
    own = [event for event in events if _belongs(landmark, event)]
    start = next((event for event in own if event["type"] == "turn_started"), None)
    shown = [event for event in own if _is_displayable(event)]
    return _Choice(
        budget=JOB_EVENTS if landmark.job is not None else EVENTS,
        primary=shown[-1] if shown else (own[-1] if own else None),
        start=start,
        essentials=_essentials(landmark, own),
        trace=next((event for event in reversed(own) if event["type"] in TRACE_TYPES), None),
        others=[event for event in own if event["type"] != "process_started"],
    )


def _essentials(landmark: Landmark, own: Sequence[Event]) -> list[Event]:
    """The most important last: what was delivered, and before it what was said by a turn whose
    end does not say it."""
    said = [] if landmark.answered or landmark.job is not None else own
    return [
        *(event for event in said if event["type"] == "assistant_text"),
        *(event for event in own if event["type"] in ESSENTIAL_TYPES),
    ][-ESSENTIALS:]


def _belongs(landmark: Landmark, event: Event) -> bool:
    if event["type"] in HIDDEN_TYPES:
        return False
    if landmark.run_id is not None:
        return bool(event.get("run_id") == landmark.run_id)
    if landmark.job is not None:
        return bool(event.get("job_id") == landmark.key.removeprefix("job:"))
    return landmark.start_seq == event["seq"] or landmark.kind in (
        "digest",
        "cross_chat",
        "codex_lifecycle",
    )


def _is_displayable(event: Event) -> bool:
    """A terminal event is, whatever it says: without it a turn would seem to go on."""
    kind = event["type"]
    if kind == "assistant_text":
        return bool(str(event.get("text") or "").strip())
    return kind not in ("turn_started", "process_started", "provider_session", *TRACE_TYPES)


def _take_essentials(choices: list[_Choice]) -> None:
    beyond = 0
    for choice in reversed(choices):
        for event in reversed(choice.essentials):
            if choice.room:
                choice.take(event)
            elif beyond < OVERFLOW and choice.take(event):
                beyond += 1


def _take_traces(choices: list[_Choice]) -> None:
    beyond = 0
    for choice in reversed(choices):
        if choice.room:
            choice.take(choice.trace)
        elif beyond < OVERFLOW and choice.take(choice.trace):
            beyond += 1


def _fill(choice: _Choice) -> None:
    """Take others, the latest first, as long as there is room."""
    while choice.room and choice.others:
        choice.take(choice.others.pop())
