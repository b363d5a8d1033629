"""The outline of a chat: its landmarks (turns, jobs, deliveries, files, errors), in order.

Pure and incremental: events of the outline go in as they follow each other in the chat, the
landmarks can be read at any time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import define, field

from agentsdock.model.events import TERMINAL_TYPES
from agentsdock.timeline.jobs import JobHistory
from agentsdock.timeline.kinds import HIDDEN_TYPES

TITLE_CHARS = 72
PREVIEW_CHARS = 240

Event = dict[str, Any]


@define(eq=False)
class Landmark:
    """One stop in a timeline.

    ``start_seq`` to ``end_seq`` holds all its events, and may hold others between them.
    ``anchor`` is where it stands: its start, for a job its latest event.
    """

    key: str
    kind: str
    start_seq: int
    end_seq: int
    timestamp: str
    run_id: str | None = None
    title: str = ""
    preview: str = ""
    tools: int = 0
    thoughts: int = 0
    open: bool = False
    """A turn without its terminal event."""
    answered: bool = False
    """A turn that succeeded with a text: its terminal event says what there is to say."""
    heard: int = 0
    """Up to where the preview is known to be the latest that was said."""
    job: JobHistory | None = None

    @property
    def anchor(self) -> int:
        return self.end_seq if self.job is not None else self.start_seq

    @property
    def meta(self) -> str:
        """What it took, as ``2 tools · 1 thought``."""
        counted = ((self.tools, "tool"), (self.thoughts, "thought"))
        return " · ".join(f"{n} {name}{'s' * (n != 1)}" for n, name in counted if n)

    def holds(self, run_id: str) -> bool:
        """Whether that run took place in it."""
        return self.run_id == run_id or (self.job is not None and run_id in self.job.runs)

    def hear(self, event: Event | None, upto: int) -> None:
        """The latest text of a turn, if there is one, as it stood at ``upto``."""
        self.preview = _cut(_said(event), PREVIEW_CHARS) if event is not None else self.preview
        self.heard = upto

    def public(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "kind": self.kind,
            "start_seq": self.start_seq,
            "end_seq": self.end_seq,
            "title": self.title,
            "preview": self.preview,
            "meta": self.meta,
            "timestamp": self.timestamp,
        }


@define
class Outline:
    """All landmarks of one chat up to ``seq``."""

    seq: int = 0
    traced: int = 0
    """Up to where trace events were counted."""
    _by_key: dict[str, Landmark] = field(factory=dict)
    _turn: Landmark | None = None
    """The latest turn: what its run says belongs to it until the next one starts."""
    _starts: list[int] = field(factory=list)
    _started: list[Landmark] = field(factory=list)
    """At each ``turn_started``, of jobs too, the landmark that it belongs to."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Landmark]:
        """In the order of their anchors."""
        return iter(sorted(self._by_key.values(), key=lambda landmark: landmark.anchor))

    def add(self, events: Iterable[Event]) -> None:
        """Take in events that follow ``seq``."""
        for event in events:
            self.seq = event["seq"]
            if not _is_hidden(event):
                self._take(event)

    def add_trace(self, rows: Iterable[tuple[int, str]]) -> None:
        """Count (seq, type) of trace events that follow ``traced``, up to ``seq`` at most."""
        for seq, kind in rows:
            self.traced = seq
            place = bisect_right(self._starts, seq) - 1
            if place >= 0:
                self._started[place].tools += kind == "tool_started"
                self._started[place].thoughts += kind == "reasoning_summary"

    def unheard(self) -> list[Landmark]:
        """Turns whose preview must be looked for in what was said on the way."""
        return [
            turn
            for turn in self._by_key.values()
            if turn.run_id is not None
            and turn.heard < turn.end_seq
            and (turn.open or not (turn.answered or turn.preview))
        ]

    def reach(self, seq: int) -> None:
        """All up to ``seq`` was added; a turn without an end goes on until there."""
        self.seq = max(self.seq, seq)
        if self._turn is not None and self._turn.open:
            self._turn.end_seq = max(self._turn.end_seq, seq)

    def _take(self, event: Event) -> None:
        group = _group(event)
        if group is None:
            self._take_of_turn(event)
        else:
            self._take_of_group(event, *group)

    def _take_of_group(self, event: Event, key: str, kind: str) -> None:
        found = self._by_key.get(key)
        if found is None:
            found = self._add(key, kind, event)
            found.job = JobHistory() if kind == "job" else None
        found.end_seq = event["seq"]
        if event["type"] == "turn_started":
            self._note_start(event["seq"], found)
        if found.job is not None:
            found.job.add(event)
            found.timestamp = event["ts"]
        found.title = found.title or _cut(_title(event), TITLE_CHARS)
        found.preview = _cut(_said(event), PREVIEW_CHARS) or found.preview

    def _take_of_turn(self, event: Event) -> None:
        run_id = event.get("run_id")
        if event["type"] == "turn_started":
            self._start_turn(event)
        elif run_id and self._turn is not None and self._turn.run_id == run_id:
            _extend(self._turn, event)
        else:
            self._add(f"event:{event['id']}", _kind(event["type"]), event)

    def _start_turn(self, event: Event) -> None:
        run_id, seq = event.get("run_id"), event["seq"]
        if self._turn is not None and self._turn.open:
            self._turn.open = False
            self._turn.end_seq = seq - 1
        key = f"turn:{run_id}"
        if key in self._by_key:
            key = f"{key}:start-{seq}"
        turn = self._add(key, "user" if _text(event, "prompt") else "assistant", event)
        turn.run_id = run_id
        turn.open = True
        self._turn = turn
        self._note_start(seq, turn)

    def _note_start(self, seq: int, landmark: Landmark) -> None:
        self._starts.append(seq)
        self._started.append(landmark)

    def _add(self, key: str, kind: str, event: Event) -> Landmark:
        seq = event["seq"]
        landmark = Landmark(key, kind, seq, seq, event["ts"])
        landmark.title = _cut(_title(event), TITLE_CHARS)
        landmark.preview = _cut(_said(event), PREVIEW_CHARS)
        self._by_key[key] = landmark
        return landmark


def _is_hidden(event: Event) -> bool:
    return event["type"] in HIDDEN_TYPES or bool(
        event["type"] == "turn_stopped" and event.get("native_steer")
    )


def _group(event: Event) -> tuple[str, str] | None:
    """The key and kind of what gathers events of more than one run."""
    kind = event["type"]
    if event.get("job_id"):
        return f"job:{event['job_id']}", "job"
    if event.get("digest_job_id"):
        return f"digest:{event['digest_job_id']}", "digest"
    exchange = event.get("cross_chat_exchange_id") or event.get("exchange_id")
    if exchange:
        leg = event.get("cross_chat_exchange_leg_id") or event.get("exchange_leg_id")
        place = f"leg:{leg}" if leg else "summary"
        return f"cross_chat_exchange:{exchange}:{place}", "cross_chat"
    if event.get("cross_chat_envelope_id"):
        return f"cross_chat:{event['cross_chat_envelope_id']}", "cross_chat"
    if kind.startswith("codex_compaction"):
        number = event.get("compaction_id") or event.get("operation_id") or event["id"]
        return f"codex:compaction:{number}", "codex_lifecycle"
    if kind == "codex_goal_budget_limited":
        return "codex:goal-budget", "codex_lifecycle"
    return None


def _kind(type_: str) -> str:
    """The landmark kind of an event that stands by itself."""
    if type_ in ("file_uploaded", "artifact_created"):
        return "media"
    if type_ in ("error", "artifact_error"):
        return "error"
    if type_ == "assistant_text" or type_ in TERMINAL_TYPES:
        return "assistant"
    return "trace" if type_ == "code_diff" else "system"


def _extend(turn: Landmark, event: Event) -> None:
    turn.end_seq = event["seq"]
    turn.preview = _cut(_said(event), PREVIEW_CHARS) or turn.preview
    if event["type"] in TERMINAL_TYPES:
        turn.open = False
        turn.answered = _is_answer(event)


def _is_answer(event: Event) -> bool:
    failed = event.get("is_error") or event.get("stopped") or event["type"] == "turn_stopped"
    return not failed and bool(_text(event, "result_text"))


def _title(event: Event) -> str:
    prompt = _text(event, "prompt")
    if prompt:
        return prompt.splitlines()[0]
    for holder in ("file", "artifact"):
        record = event.get(holder)
        if isinstance(record, dict):
            return _text(record, "title") or _text(record, "filename")
    named = _text(event, "job_title") or _text(event, "message")
    return named.splitlines()[0] if named else event["type"].replace("_", " ").capitalize()


def _said(event: Event) -> str:
    """What a person would want to read of it in a line or two."""
    if event["type"] == "turn_started":
        return ""
    for name in ("result_text", "text", "message", "error"):
        if text := _text(event, name):
            return text
    return ""


def _text(record: Event, name: str) -> str:
    value = record.get(name)
    return value.strip() if isinstance(value, str) else ""


def _cut(text: str, limit: int) -> str:
    """On one line, and a code point is never split."""
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
