"""What is known of the CLIs of this host: probed, kept for a while, corrected by what runs.

A probe takes seconds, and a turn can end in the middle of one.  Each fact that is stored moves
a fence, and what began before it is thrown away: the older answer never wins.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from attrs import define, evolve, field

from agentsdock.backends.protocol import Admitted, Backend, Diagnostic, RunProbe
from agentsdock.config import Settings
from agentsdock.logs import get_logger, where
from agentsdock.model.codes import Code
from agentsdock.model.errors import Unavailable
from agentsdock.model.times import iso_now

CATALOG_SECONDS = 25.0
"""For all backends together: clients give up after 30."""
LAST_ERROR_CHARS = 700

log = get_logger()


class _Shared:
    """One piece of work at a time; who came while it went on takes part in its outcome.

    The work runs in the task of a caller.  If that one is cancelled, the next does it.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._done = 0
        self._outcome: Any = None

    async def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        done = self._done
        async with self._lock:
            if self._done == done:
                self._outcome = await work()
                self._done += 1
            return self._outcome


@define(eq=False)
class _Known:
    """One backend.

    ``fence`` counts the stored facts.  Until ``fresh_until`` (Trio's clock) nothing is asked
    again; only the CLI's own answers move it, or a program in use would never be seen to change.
    """

    diagnostic: Diagnostic
    fence: int = 0
    fresh_until: float = -math.inf
    probe: _Shared = field(factory=_Shared)
    confirmation: _Shared = field(factory=_Shared)
    listing: _Shared = field(factory=_Shared)


class Runtimes:
    """The CLIs that turns can run on."""

    def __init__(self, settings: Settings, backends: Mapping[str, Backend], run: RunProbe) -> None:
        self._ttl = settings.diagnostic_ttl_seconds
        self._backends = backends
        self._run = run
        self._known = {name: _Known(Diagnostic(name)) for name in backends}

    def diagnostic(self, name: str) -> Diagnostic:
        """What is known now.  Starts nothing; ``unknown`` before the first probe."""
        return self._known[name].diagnostic

    async def check(self, name: str, *, refresh: bool = False) -> Diagnostic:
        """What is known, probed anew if that is older than its time to live, or on demand."""
        known = self._known[name]
        if refresh or trio.current_time() >= known.fresh_until:
            await known.probe.run(lambda: self._probe(name))
        return known.diagnostic

    async def admit(self, name: str) -> Admitted:
        """The program to run a turn with.  Raises Unavailable.

        A program that was found ready and is still the same file is admitted at once, however
        old that finding is: a turn must not wait for probes that could only repeat it, and what
        else may have changed (a sign-in that expired) the turn itself tells.  Anything else is
        probed first.
        """
        found = self._known[name].diagnostic
        if not (found.ready and _is_there(found)):
            found = await self.check(name, refresh=found.ready)
        if not found.ready or found.program is None:
            raise Unavailable(
                found.message,
                code=Code.RUNTIME_UNAVAILABLE.value,
                action=found.action,
                backend=name,
                status=found.status,
            )
        return Admitted(name, found.program.path, found.version, found.features)

    async def catalog(self, *, refresh: bool = False) -> dict[str, Any]:
        """The catalogue of all backends, within 25 seconds."""
        deadline = trio.current_time() + CATALOG_SECONDS
        entries: dict[str, dict[str, Any]] = {}

        async def fill(name: str) -> None:
            entries[name] = await self._entry(name, refresh, deadline)

        async with trio.open_nursery() as nursery:
            for name in self._backends:
                nursery.start_soon(fill, name)
        return {
            "generated_at": iso_now(),
            "backends": {name: entries[name] for name in self._backends},
        }

    def record_success(self, name: str) -> None:
        """A turn succeeded.  That makes a probed program ready, but no unfit one fit."""
        known = self._known[name]
        known.diagnostic = evolve(known.diagnostic, last_error=None, last_error_at=None)
        if known.diagnostic.program is not None:
            ready = evolve(
                known.diagnostic,
                status="ready",
                authenticated=True,
                message="The CLI ran a turn successfully.",
                action=None,
                checked_at=iso_now(),
            )
            _store(known, ready)

    async def record_failure(self, name: str, message: str, *, auth_suspect: bool = False) -> None:
        """A turn failed of its own accord; ``message`` holds no account and no path.

        Where its words look like a missing sign-in, the CLI is asked once: any project can
        print such words, so they alone change nothing.
        """
        known = self._known[name]
        known.diagnostic = evolve(
            known.diagnostic, last_error=message[:LAST_ERROR_CHARS], last_error_at=iso_now()
        )
        if auth_suspect and known.diagnostic.program is not None:
            await known.confirmation.run(lambda: self._confirm(name))

    def record_missing(self, name: str) -> None:
        """The program of an admitted turn was gone when it was to start."""
        known = self._known[name]
        _store(known, self._backends[name].missing())
        # An update may have put another one in its place.
        known.fresh_until = -math.inf

    async def _probe(self, name: str) -> None:
        known = self._known[name]
        fence = known.fence
        try:
            found = await self._backends[name].diagnose(self._run)
        except Exception as error:
            log.error("probe failed", backend=name, error=where(error))
            found = _not_looked_at(name)
        if known.fence == fence or (found.ready and known.diagnostic.ready):
            _store(known, found)
            known.fresh_until = trio.current_time() + self._ttl

    async def _confirm(self, name: str) -> None:
        known = self._known[name]
        fence = known.fence
        found = await self._backends[name].check_sign_in(self._run, known.diagnostic)
        if known.fence == fence and not found.ready:
            _store(known, found)
            known.fresh_until = trio.current_time() + self._ttl

    async def _entry(self, name: str, refresh: bool, deadline: float) -> dict[str, Any]:
        backend = self._backends[name]
        entry = backend.fallback_models("Runtime refresh deadline")
        with trio.CancelScope(deadline=deadline):
            found = await self.check(name, refresh=refresh)
            listing = self._known[name].listing
            entry = await listing.run(lambda: self._listed(backend, found))
        found = self.diagnostic(name)
        return {**entry, "diagnostic": found.public(), "available": found.ready}

    async def _listed(self, backend: Backend, found: Diagnostic) -> dict[str, Any]:
        """A bug in one backend must not cost the others their entries."""
        try:
            return await backend.models(self._run, found)
        except Exception as error:
            log.error("models not listed", backend=backend.name, error=where(error))
            return backend.fallback_models("Model listing failed")


def _not_looked_at(name: str) -> Diagnostic:
    return Diagnostic(
        name,
        status="error",
        message="The server failed to look at this CLI.",
        action="Its log says where; use Recheck CLIs to try again.",
        checked_at=iso_now(),
    )


def _is_there(found: Diagnostic) -> bool:
    return found.program is not None and found.program.unchanged()


def _store(known: _Known, found: Diagnostic) -> None:
    """A probe says nothing of the last run: only a successful one clears its error."""
    before = known.diagnostic
    known.diagnostic = evolve(
        found, last_error=before.last_error, last_error_at=before.last_error_at
    )
    known.fence += 1
