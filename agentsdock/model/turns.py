"""A turn before, while and after it runs, as it is kept on disk."""

from enum import StrEnum
from typing import Any

from attrs import field, frozen


class RunState(StrEnum):
    """Delivery states of a run (a queue row that has none yet is simply queued)."""

    LEASED = "leased"
    HANDED_OVER = "handed_over"
    ACKNOWLEDGED = "acknowledged"


HIDDEN_PURPOSES = frozenset({"cross_chat_handoff_delivery", "secure_peer_handoff_delivery"})
"""Deliveries from other chats: they wait in the queue, but nobody sees or touches their rows."""


@frozen
class QueuedTurn:
    """A turn that waits.  ``position`` orders the rows of one chat, and the chats themselves.

    ``promoted`` is a head that a person forced to run next; it stays so until it starts, is
    paused or is overtaken.
    """

    queued_id: str
    session_id: str
    position: float
    prompt: str
    created_at: str
    display_prompt: str | None = None
    file_ids: tuple[str, ...] = ()
    backend: str | None = None
    model: str | None = None
    effort: str | None = None
    client_capabilities: tuple[str, ...] = ()
    chat_references: tuple[dict[str, Any], ...] = ()
    purpose: str | None = None
    paused: bool = False
    pause_reason: str | None = None
    deferred: bool = False
    promoted: bool = False
    meta: dict[str, Any] = field(factory=dict)

    @property
    def shown_prompt(self) -> str:
        return self.prompt if self.display_prompt is None else self.display_prompt

    @property
    def hidden(self) -> bool:
        return self.purpose in HIDDEN_PURPOSES


@frozen
class Run:
    """An admitted turn.  It is open from its ``turn_started`` to its terminal event.

    ``owner`` is the server instance that holds the lease and ``fence`` grows with every
    claim of the same run; ``guard_pid``/``guard_start`` (clock ticks since boot, field 22 of
    ``/proc/PID/stat``) tell the boot sweep which processes were ours.
    """

    id: str
    session_id: str
    backend: str
    owner: str
    started_at: str
    state: RunState = RunState.LEASED
    fence: int = 1
    queued_id: str | None = None
    guard_pid: int | None = None
    guard_start: int | None = None
    cli_pid: int | None = None
    cli_start: int | None = None
    meta: dict[str, Any] = field(factory=dict)
    """Run metadata that most events of the run repeat (``purpose``, ``job_id``, ...)."""
