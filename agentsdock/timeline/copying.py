"""What a fork takes over of its parent's timeline.  Pure."""

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from agentsdock.model.events import TERMINAL_TYPES, Draft

COPIED_TYPES = frozenset(
    {
        "artifact_created",
        "artifact_error",
        "assistant_text",
        "code_diff",
        "codex_compaction_completed",
        "codex_compaction_started",
        "error",
        "file_uploaded",
        "reasoning_summary",
        "tool_finished",
        "tool_started",
        "turn_finished",
        "turn_started",
        "turn_stopped",
    }
)
PRIVATE_PURPOSES = frozenset(
    {
        "cross_chat_handoff_delivery",
        "handoff_digest",
        "handoff_digest_delivery",
        "secure_peer_handoff_delivery",
    }
)
"""Runs whose texts belong to the chats that they were exchanged between."""

Event = dict[str, Any]


@define
class TimelineCopy:
    """Turns a parent's events, in their order, into those of its fork."""

    copied: int = 0
    _run: str | None = None
    """The run that was started last; None once it has ended."""
    _backend: str | None = None
    _has_spoken: bool = False
    _private: set[str] = field(factory=set)

    def wants(self, event: Event) -> bool:
        if event["type"] == "turn_started" and event.get("purpose") in PRIVATE_PURPOSES:
            self._private.add(str(event.get("run_id")))
        return event["type"] in COPIED_TYPES and not (
            event.get("purpose") in PRIVATE_PURPOSES or event.get("run_id") in self._private
        )

    def copy(self, event: Event, files: Mapping[str, Event | None]) -> list[Draft]:
        """The drafts for one wanted event.

        ``files`` has, by the parent's file id, the record of the copy, or None where there is
        none.
        """
        drafts = self.end() if _starts_run(event) else []
        self._follow(event)
        payload = {key: value for key, value in event.items() if key not in _OWN_KEYS}
        if event["type"] == "turn_finished" and self._has_spoken:
            payload["result_text"] = ""
        draft = _with_files(Draft(event["type"], payload), files)
        origin = {
            "forked": True,
            "original_session_id": event["session_id"],
            "original_seq": event["seq"],
            "original_ts": event["ts"],
        }
        self.copied += 1
        return [*drafts, Draft(draft.type, {**draft.payload, **origin})]

    def end(self) -> list[Draft]:
        """What closes a run that was still open where the copy ends."""
        if self._run is None:
            return []
        stop = {
            "run_id": self._run,
            "backend": self._backend,
            "reason": "fork_snapshot",
            "synthetic": True,
            "stopped": True,
            "forked": True,
            "code": "stopped",
            "message": "The fork was made while this turn ran.",
        }
        self._run = None
        return [Draft("turn_stopped", stop)]

    def _follow(self, event: Event) -> None:
        if _starts_run(event):
            self._run = event.get("run_id")
            self._backend = event.get("backend")
            self._has_spoken = False
        elif event.get("run_id") != self._run:
            return
        elif event["type"] == "assistant_text":
            self._has_spoken = True
        elif event["type"] in TERMINAL_TYPES:
            self._run = None


_OWN_KEYS = frozenset({"seq", "id", "session_id", "type"})


def _starts_run(event: Event) -> bool:
    """Imported turns are no runs: they have no end, and may stand within a run."""
    return event["type"] == "turn_started" and not event.get("imported")


def file_of(event: Event) -> Event | None:
    """The record of the file that an event introduced."""
    record = event.get("file") or event.get("artifact")
    return record if isinstance(record, dict) and isinstance(record.get("id"), str) else None


def _with_files(draft: Draft, files: Mapping[str, Event | None]) -> Draft:
    payload = draft.payload
    if isinstance(payload.get("file_ids"), list):
        fresh = [files.get(old) for old in payload["file_ids"]]
        return Draft(draft.type, {**payload, "file_ids": [file["id"] for file in fresh if file]})
    record = file_of(payload)
    if record is None:
        return draft
    copy = files.get(record["id"])
    if copy is not None:
        return Draft(draft.type, {**payload, "artifact" if "artifact" in payload else "file": copy})
    lost = {
        "run_id": payload.get("run_id"),
        "ts": payload["ts"],
        "source_file_id": record["id"],
        "filename": record.get("filename"),
        "error": "This file could not be copied into the fork.",
        "detail": "It is still in the chat that was forked.",
    }
    return Draft("artifact_error", lost)
