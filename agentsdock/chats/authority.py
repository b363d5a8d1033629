"""What the CLI of a running turn may ask of the server, and how it proves who it is.

A turn gets a secret of its own, in a file whose path only its prompt names.  It counts for that
one run, from before its CLI starts until a stop is admitted or the run ends.  The server keeps
a hash, in memory: nothing survives a restart.
"""

import enum
import hashlib
import json
import os
import pathlib
import secrets
import time
from contextlib import suppress

from attrs import field, frozen

from agentsdock.files.folders import open_private
from agentsdock.logs import get_logger
from agentsdock.model.errors import Forbidden

FOLDER = "cross_chat_authority"
LIFETIME_SECONDS = 604_800

log = get_logger()


class Action(enum.StrEnum):
    """What an authority may be used for."""

    PUBLISH = "publish"
    JOBS = "jobs"


@frozen
class Grant:
    """What one run may ask; in force from ``Authorities.grant`` to ``revoke``."""

    session_id: str
    run_id: str
    path: pathlib.Path
    """Of the file that holds the secret, and nothing else does."""
    actions: frozenset[Action]
    jobs_access: str
    """The chat's ``provider_jobs_access`` when its turn was prepared."""

    def require_jobs(self, access_now: str, *, change: bool) -> None:
        """Raises Forbidden unless both then and now the chat lets its agent see (``change``:
        or change) its jobs: tightening counts at once, loosening from the next turn on."""
        enough = ("full",) if change else ("full", "read_only")
        if self.jobs_access not in enough or access_now not in enough:
            what = "change" if change else "see"
            raise Forbidden(f"the settings of this chat do not let its agent {what} jobs")


@frozen
class Authorities:
    """The authorities of the live runs, by the hash of their secrets."""

    folder: pathlib.Path
    server_identity: str
    served: frozenset[Action] = frozenset({Action.PUBLISH})
    """Actions that this server has routes for; no others are granted."""
    authenticated: bool = False
    """Whether clients need a token.  Where anybody is a client, an agent may only publish."""
    _held: dict[str, Grant] = field(factory=dict, init=False, repr=False)

    def secure(self) -> None:
        """Make the folder.  Raises OSError for one that is a link or somebody else's."""
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_private(self.folder))

    def purge(self) -> None:
        """Remove what an earlier life left; nothing is followed that is no file of ours.

        For the one server that holds the state folder.  Raises OSError.
        """
        folder = open_private(self.folder)
        try:
            for name in os.listdir(folder):
                with suppress(IsADirectoryError, PermissionError):
                    os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    def prepare(self, session_id: str, run_id: str, jobs_access: str) -> Grant:
        path = self.folder / f"{run_id}-{secrets.token_hex(16)}.json"
        return Grant(session_id, run_id, path, self._actions(jobs_access), jobs_access)

    def _actions(self, jobs_access: str) -> frozenset[Action]:
        if not self.authenticated:
            return self.served & {Action.PUBLISH}
        return self.served - ({Action.JOBS} if jobs_access == "blocked" else set())

    def grant(self, grant: Grant) -> None:
        """Put it in force.  Raises OSError."""
        secret = secrets.token_urlsafe(48)
        content = {
            "version": 1,
            "server_identity": self.server_identity,
            "source_session_id": grant.session_id,
            "source_run_id": grant.run_id,
            "provider_capability": secret,
            "capability": secret,
            "provider_jobs_access": grant.jobs_access,
            "expires_at": time.time() + LIFETIME_SECONDS,
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(grant.path, flags, 0o600), "w") as file:
                json.dump(content, file)
        except OSError:
            _remove(grant.path)
            raise
        self._held[_hash(secret)] = grant

    def revoke(self, run_id: str) -> None:
        """End what a run may do; again is no error."""
        for hashed, grant in self._held.items():
            if grant.run_id == run_id:
                del self._held[hashed]
                _remove(grant.path)
                return

    def is_live(self, run_id: str) -> bool:
        return any(grant.run_id == run_id for grant in self._held.values())

    def authorize(self, secret: str | None, session_id: str, action: Action) -> Grant:
        """Whose secret it is.  Raises Forbidden unless that is a running turn of this chat
        that may do this."""
        grant = self._held.get(_hash(secret)) if secret else None
        if grant is None:
            raise Forbidden("this capability is not that of a running turn")
        if grant.session_id != session_id:
            raise Forbidden("this capability belongs to another chat")
        if action not in grant.actions:
            raise Forbidden(f"this capability does not cover {action}")
        return grant


def _remove(path: pathlib.Path) -> None:
    """An agent may have put anything in its place; the secret counts no more either way."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("authority file not removed", error=error.strerror)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
