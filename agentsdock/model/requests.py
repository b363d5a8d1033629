"""What a client may ask of a chat, after the web room has read it.

``UNSET`` tells an absent key from a null one where the contract makes a difference.
"""

from typing import Any, Final

from attrs import frozen


class Unset:
    """The type of UNSET: a key that was not sent."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()


@frozen
class CreateSession:
    title: str | None = None
    folder: str | None = None
    cwd: str | None = None
    backend: str | None = None
    model: str | None = None
    effort: str | None = None
    system_prompt: str | None = None
    pinned: bool | None = None
    archived: bool | None = None
    provider_session_id: str | None = None
    cursor_permission_mode: str | None = None
    claude_permission_mode: str | None = None
    codex_approval_policy: str | None = None
    codex_sandbox_mode: str | None = None
    codex_permission_profile: str | None = None
    codex_approvals_reviewer: str | None = None
    provider_jobs_access: str | None = None
    import_history: bool | None = None

    @property
    def wants_history(self) -> bool:
        return bool(self.provider_session_id) and self.import_history is not False


@frozen
class PatchSession:
    """Only keys that were sent act."""

    title: str | Unset | None = UNSET
    folder: str | Unset | None = UNSET
    cwd: str | Unset | None = UNSET
    backend: str | Unset | None = UNSET
    model: str | Unset | None = UNSET
    effort: str | Unset | None = UNSET
    system_prompt: str | Unset | None = UNSET
    pinned: bool | Unset | None = UNSET
    archived: bool | Unset | None = UNSET
    cursor_permission_mode: str | Unset | None = UNSET
    claude_permission_mode: str | Unset | None = UNSET
    codex_approval_policy: str | Unset | None = UNSET
    codex_sandbox_mode: str | Unset | None = UNSET
    codex_permission_profile: str | Unset | None = UNSET
    codex_approvals_reviewer: str | Unset | None = UNSET
    provider_jobs_access: str | Unset | None = UNSET


@frozen
class PlaceSession:
    """Where a chat goes: one place up or down, or before or after another chat."""

    direction: str | None = None
    target_id: str | None = None
    placement: str = "before"
    target_folder: str | None = None


@frozen
class PostTurn:
    """A user's message.  ``model`` and ``effort``: None leaves the chat's, ``""`` clears it."""

    prompt: str
    file_ids: tuple[str, ...] = ()
    backend: str | None = None
    model: str | None = None
    effort: str | None = None
    display_prompt: str | None = None
    client_capabilities: tuple[str, ...] = ()
    chat_references: tuple[dict[str, Any], ...] = ()


@frozen
class EditQueued:
    """Changes to a waiting message; what is None stays as it is."""

    prompt: str | None = None
    file_ids: tuple[str, ...] | None = None
    client_capabilities: tuple[str, ...] | None = None
    chat_references: tuple[dict[str, Any], ...] | None = None


@frozen
class ReadPage:
    """A page of a chat's timeline; sequence numbers are exclusive."""

    after: int = 0
    before: int | None = None
    limit: int = 100
    tail: bool = True
    visible: bool = False
    compact: bool = False
    semantic: bool = False
    """``limit`` counts landmarks instead of events."""


@frozen
class Idempotency:
    """A client's key for one request; ``request_hash`` tells whether a repeat is the same."""

    scope: str
    key: str
    request_hash: str
