"""Neutral stream events to timeline drafts: shapes, bounds, and what each call came to.

The parsers bound what they keep; the bounds here are what an event may carry whatever they do.
"""

import json
from collections import Counter
from itertools import islice
from typing import Any

from agentsdock.model.events import Draft
from agentsdock.streams import bounding
from agentsdock.streams.neutral import (
    Init,
    Outcome,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
    Unusable,
)
from agentsdock.turns.diagnosis import clean, scrub
from agentsdock.turns.verdicts import TurnFacts

PROSE_CHARS = 200
MAX_EDITED = 10_000


class Projection:
    """The timeline of one run, as far as its stream makes it."""

    def __init__(self, facts: TurnFacts) -> None:
        self._facts = facts
        self._common = {"run_id": facts.run_id, **facts.meta}
        self._open: dict[str, dict[str, Any]] = {}
        self._timeouts: dict[str, float | None] = {}
        self._outcomes: Counter[Outcome] = Counter()
        self._editing: dict[str, tuple[str, ...]] = {}
        self._edited: dict[str, None] = {}

    @property
    def open_calls(self) -> dict[str, float | None]:
        """Each call that has no completion yet, with the timeout that it declares."""
        return self._timeouts

    @property
    def tools(self) -> dict[str, int]:
        """Calls by outcome; the open ones count as unfinished."""
        counts = {outcome.value: self._outcomes[outcome] for outcome in Outcome}
        counts["unfinished"] += len(self._open)
        return {"total": sum(counts.values()), **counts}

    @property
    def edited(self) -> tuple[str, ...]:
        """Files that edit tools named, in order; not those of refused calls, unless named again."""
        began = (path for paths in self._editing.values() for path in paths)
        return tuple(islice(dict.fromkeys((*self._edited, *began)), MAX_EDITED))

    def draft(self, type: str, **fields: Any) -> Draft:
        return Draft(type, {**self._common, **fields})

    def session(self, init: Init) -> Draft:
        return self.draft(
            "provider_session", backend=self._facts.backend, provider_session_id=init.session_id
        )

    def text(self, event: Text) -> Draft:
        text = bounding.head(event.text, self._facts.bounds.text_chars)
        payload = {**self._common, "text": text}
        if event.chars > len(text):
            payload.update(_cut("text", text, event.chars))
        return Draft("assistant_text", payload)

    def thought(self, event: Thought) -> Draft:
        text = bounding.head(event.text, self._facts.bounds.thought_chars)
        return self.draft(
            "reasoning_summary",
            text=text,
            phase="commentary",
            **_cut("text", text, event.chars),
        )

    def tool_started(self, event: ToolStarted) -> Draft:
        tool = _tool(event)
        self._open[event.call_id] = tool
        self._timeouts[event.call_id] = event.timeout_seconds
        if event.edits:
            self._editing[event.call_id] = event.edits
        return self.draft("tool_started", tool=tool)

    def tool_finished(self, event: ToolFinished) -> Draft:
        tool = self._open.pop(event.call_id, None) or _tool(event)
        self._timeouts.pop(event.call_id, None)
        self._outcomes[event.outcome] += 1
        edits = self._editing.pop(event.call_id, event.edits)
        if event.outcome is not Outcome.REJECTED and len(self._edited) < MAX_EDITED:
            self._edited.update(dict.fromkeys(edits))
        output = bounding.tail(event.output, self._facts.bounds.tool_chars)
        fields = _cut("output", output, event.output_chars or len(event.output))
        if event.label is not None:
            fields["label"] = bounding.name(event.label)
        return self.draft(
            "tool_finished",
            tool_id=event.call_id,
            tool=tool,
            output=output,
            exit_code=event.exit_code,
            outcome=event.outcome.value,
            is_error=event.outcome in (Outcome.FAILED, Outcome.REJECTED),
            **fields,
        )

    def close_calls(self) -> list[Draft]:
        """An end for each call that never told its own."""
        drafts = [
            self.draft(
                "tool_finished",
                tool_id=call_id,
                tool=tool,
                output="",
                exit_code=None,
                outcome=Outcome.UNFINISHED.value,
                is_error=False,
            )
            for call_id, tool in self._open.items()
        ]
        self._outcomes[Outcome.UNFINISHED] += len(self._open)
        self._open.clear()
        self._timeouts.clear()
        return drafts

    def unusable(self, line: Unusable) -> Draft:
        """What may be told of a line that was no use: never its content if it looks like JSON."""
        told: dict[str, Any] = {"size": line.size}
        if line.type is not None:
            told["type"] = bounding.name(clean(line.type))
        if line.subtype is not None:
            told["subtype"] = bounding.name(clean(line.subtype))
        if line.prose is not None and not line.prose.lstrip().startswith("{"):
            told["prose"] = scrub(clean(line.prose), self._facts.scrub)[:PROSE_CHARS]
        raw = json.dumps(told, ensure_ascii=False)
        return self.draft("raw_event", backend=self._facts.backend, raw=raw)


def _tool(event: ToolStarted | ToolFinished) -> dict[str, Any]:
    given = event.input
    return {
        "id": event.call_id,
        "name": bounding.name(event.name),
        "input": given if isinstance(given, dict) else {"value": given},
    }


def _cut(what: str, kept: str, chars: int | None) -> dict[str, Any]:
    """The announcement of a cut, for the event that carries what was kept."""
    if chars is None or chars <= len(kept):
        return {}
    return {f"{what}_chars": chars, f"{what}_truncated": True}
