"""The helpers that a CLI started by itself, by their latest state."""

from collections.abc import Iterable
from typing import Any

from attrs import define, field

ACTIVE = frozenset({"active", "in_progress", "pending", "running", "started", "starting"})


@define
class Subagents:
    """Of ``subagent_state`` events in the order of the chat, the last one of each helper."""

    _latest: dict[str, dict[str, Any]] = field(factory=dict)

    def add(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            name = str(event.get("subagent_id") or event["id"])
            self._latest.pop(name, None)
            self._latest[name] = event

    def newest(self, limit: int) -> dict[str, Any]:
        """The helpers that changed last, latest first, and how many there are."""
        active = sum(str(event.get("subagent_status")) in ACTIVE for event in self._latest.values())
        newest = list(self._latest.values())[::-1]
        return {
            "subagents": newest[:limit],
            "count": len(self._latest),
            "active_count": active,
        }
