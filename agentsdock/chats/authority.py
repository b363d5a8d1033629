"""What the CLI of a running turn may ask of the server, and how it proves who it is.

A turn gets a secret of its own, in a file whose path only its prompt names.  It counts for that
one run, from before its CLI starts until a stop is admitted or the run ends.  The server keeps
a hash, in memory: nothing survives a restart.
"""

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


@frozen
class Grant:
    """A run's authority before it is in force: where its file will be, and the secret."""

    session_id: str
    run_id: str
    path: pathlib.Path
    secret: str = field(repr=False)
    jobs_access: str


@frozen
class Holder:
    """Who holds a secret."""

    session_id: str
    run_id: str


@frozen
class Authorities:
    """The authorities of the live runs, by the hash of their secrets."""

    folder: pathlib.Path
    server_identity: str
    _held: dict[str, Holder] = field(factory=dict, init=False)
    _grants: dict[str, Grant] = field(factory=dict, init=False)

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
        return Grant(session_id, run_id, path, secrets.token_urlsafe(48), jobs_access)

    def grant(self, grant: Grant) -> None:
        """Put it in force.  Raises OSError."""
        content = {
            "version": 1,
            "server_identity": self.server_identity,
            "source_session_id": grant.session_id,
            "source_run_id": grant.run_id,
            "provider_capability": grant.secret,
            "capability": grant.secret,
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
        self._held[_hash(grant.secret)] = Holder(grant.session_id, grant.run_id)
        self._grants[grant.run_id] = grant

    def revoke(self, run_id: str) -> None:
        """End what a run may do; again is no error."""
        grant = self._grants.pop(run_id, None)
        if grant is None:
            return
        del self._held[_hash(grant.secret)]
        _remove(grant.path)

    def is_live(self, run_id: str) -> bool:
        return run_id in self._grants

    def holder(self, secret: str | None) -> Holder:
        """Raises Forbidden."""
        found = self._held.get(_hash(secret)) if secret else None
        if found is None:
            raise Forbidden("this capability is not that of a running turn")
        return found


def _remove(path: pathlib.Path) -> None:
    """An agent may have put anything in its place; the secret counts no more either way."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("authority file not removed", error=error.strerror)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
