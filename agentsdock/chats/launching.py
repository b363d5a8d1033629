"""From a waiting turn to everything that is needed to run it."""

import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence

from attrs import evolve, frozen

from agentsdock.backends.environment import installed_helpers
from agentsdock.backends.probing import Runtimes
from agentsdock.backends.prompt_envelope import helpers_part, manifest_path
from agentsdock.backends.protocol import (
    Admitted,
    AttachedFile,
    Backend,
    Command,
    Envelope,
    TurnContext,
)
from agentsdock.chats import bindings, memory
from agentsdock.chats.authority import Action, Authorities, Grant
from agentsdock.chats.choosing import backend_changed, with_runtime
from agentsdock.config import Settings
from agentsdock.guard.contract import LaunchSpec
from agentsdock.model.errors import PromptTooLarge
from agentsdock.model.events import Draft
from agentsdock.model.ids import new_run_id
from agentsdock.model.sessions import DEFAULT_TITLE, Session
from agentsdock.model.times import iso_now
from agentsdock.model.turns import QueuedTurn, Run
from agentsdock.store.protocol import Store
from agentsdock.streams.neutral import ParserSpec
from agentsdock.turns.machine import TurnMachine
from agentsdock.turns.runner import TurnJob
from agentsdock.turns.verdicts import TurnFacts

Attached = Callable[[str, Sequence[str]], Awaitable[tuple[AttachedFile, ...]]]
"""A chat's files by their ids, as a CLI reads them.  Raises NotFound."""

TITLE_CHARS = 72
HELPERS = {
    Action.PUBLISH: "AGENTSDOCK_PUBLISH_CLI",
    Action.JOBS: "AGENTSDOCK_JOBS_CLI",
}
SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)\Z", re.IGNORECASE)


@frozen
class Launch:
    """A turn that is ready to be claimed: its record, its first events and its job."""

    run: Run
    session: Session
    first_events: tuple[Draft, ...]
    envelope: Envelope
    job: TurnJob
    machine: TurnMachine
    version: str | None
    usage_is_total: bool
    grant: Grant
    refusal: PromptTooLarge | None
    """Why it ends before a process exists; its events are written all the same."""


@frozen
class Launcher:
    """Prepares turns.  Holds what is the same for all of them."""

    settings: Settings
    store: Store
    runtimes: Runtimes
    backends: Mapping[str, Backend]
    server_identity: str
    instance_id: str
    server_url: str
    attached: Attached
    authorities: Authorities

    async def check(self, session: Session, turn: QueuedTurn) -> None:
        """Whether the runtime would be admitted now.  Raises DockError as ``prepare``."""
        await self.runtimes.admit(with_runtime(session, turn).backend)

    async def prepare(self, session: Session, turn: QueuedTurn, shown_id: str | None) -> Launch:
        """Admit the runtime and compose the command.

        ``shown_id`` is the queue row that this turn was.  Raises DockError; 503 where the
        runtime is not usable.
        """
        before = session.backend
        session = with_runtime(session, turn)
        files = await self.attached(session.id, turn.file_ids)
        admitted = await self.runtimes.admit(session.backend)
        backend = self.backends[session.backend]
        run = Run(
            id=new_run_id(),
            session_id=session.id,
            backend=session.backend,
            owner=self.instance_id,
            started_at=iso_now(),
            queued_id=shown_id,
            meta=run_meta(turn),
        )
        first = [_turn_started(run, session, turn)]
        if session.backend != before:
            first.append(backend_changed(before, session.backend))
        cwd = working_directory(session.cwd, self.settings.cwd)
        if cwd != session.cwd:
            first.append(_cwd_fallback(run, session.cwd, cwd))
        if bindings.must_roll_over(session):
            session, event = await self._roll_over(session, run)
            first.append(event)
        grant = self.authorities.prepare(session.id, run.id, session.provider_jobs_access)
        usable = {HELPERS[action] for action in grant.actions} & installed_helpers()
        helpers = helpers_part(str(grant.path), session.id, usable)
        envelope = backend.compose(session, turn.prompt, files, helpers)
        session = evolve(session, locked=True, title=_title(session, turn))
        command, refusal = self._command(backend, admitted, session, envelope, run)
        return Launch(
            run=run,
            session=session,
            first_events=tuple(first),
            envelope=envelope,
            job=self._job(session, run, command, cwd),
            machine=self._machine(backend, session, run, envelope),
            version=admitted.version,
            usage_is_total=backend.usage_is_total,
            grant=grant,
            refusal=refusal,
        )

    def _command(
        self, backend: Backend, admitted: Admitted, session: Session, envelope: Envelope, run: Run
    ) -> tuple[Command | None, PromptTooLarge | None]:
        manifest = manifest_path(self.settings.state_dir, session.id)
        context = TurnContext(session.id, run.id, self.server_url, manifest)
        try:
            return backend.command(admitted, session, envelope, context), None
        except PromptTooLarge as error:
            return None, error

    def _job(self, session: Session, run: Run, command: Command | None, cwd: str) -> TurnJob:
        limits = self.settings.backends[session.backend].limits
        if command is None:
            return TurnJob(None, (), limits)
        spec = LaunchSpec(
            argv=command.argv,
            env=command.env,
            cwd=cwd,
            marker=f"{self.server_identity}:{run.id}",
            stdin=command.stdin,
            stop_signals=command.stop_signals,
            grace=limits.stop_grace_seconds,
            teardown_grace=limits.teardown_grace_seconds,
        )
        return TurnJob(spec, command.shown_argv, limits)

    def _machine(
        self, backend: Backend, session: Session, run: Run, envelope: Envelope
    ) -> TurnMachine:
        bounds = self.settings.backends[session.backend].bounds
        resume_id = session.binding().session_id
        facts = TurnFacts(
            run_id=run.id,
            backend=session.backend,
            resume_id=resume_id,
            forks=resume_id is None and session.fork_from is not None,
            used_before=session.binding().used,
            meta=run.meta,
            bounds=bounds,
            scrub=(envelope.prompt, *_secrets(self.settings)),
        )
        return TurnMachine(facts, backend.parser(ParserSpec(resume_id, bounds)))

    async def _roll_over(self, session: Session, run: Run) -> tuple[Session, Draft]:
        old = session.binding().session_id
        reason = "The CLI did not take up its earlier session in two turns in a row."
        seed = await memory.remember(
            self.store,
            session,
            reason,
            max_chars=self.settings.fork_memory_chars,
            item_chars=self.settings.fork_memory_item_chars,
        )
        event = Draft(
            "provider_rollover",
            {
                "run_id": run.id,
                "backend": session.backend,
                "old_provider_session_id": old,
                "reason": "resume_failed",
                "message": f"{reason} This turn starts a fresh one with a summary of the chat.",
                **run.meta,
            },
        )
        return bindings.rolled_over(session, seed), event


def _secrets(settings: Settings) -> list[str]:
    """Values that no event may show, should a CLI print them."""
    keys = [value for name, value in settings.environ.items() if SECRET_NAME.search(name)]
    return [secret for secret in (settings.token, *keys) if secret and len(secret) >= 8]


def run_meta(turn: QueuedTurn) -> dict[str, object]:
    """The run metadata that events of the run repeat."""
    purpose = {"purpose": turn.purpose} if turn.purpose else {}
    return {**purpose, **turn.meta}


def _turn_started(run: Run, session: Session, turn: QueuedTurn) -> Draft:
    payload = {
        "run_id": run.id,
        "backend": session.backend,
        "prompt": turn.shown_prompt,
        "file_ids": list(turn.file_ids),
        "chat_references": list(turn.chat_references),
        "model": session.model,
        "effort": session.effort,
        **run.meta,
    }
    if run.queued_id is not None:
        payload["queued_id"] = run.queued_id
    return Draft("turn_started", payload)


def working_directory(wanted: str, default: str) -> str:
    """The chat's folder, or where a turn runs when that is gone."""
    for place in (wanted, default, os.path.expanduser("~")):
        if os.path.isabs(place) and os.path.isdir(place):
            return place
    return tempfile.gettempdir()


def _cwd_fallback(run: Run, wanted: str, cwd: str) -> Draft:
    payload = {"run_id": run.id, "requested_cwd": wanted, "cwd": cwd}
    message = "The chat's folder is not there; the turn runs in another one."
    return Draft("cwd_fallback", {**payload, "message": message})


def _title(session: Session, turn: QueuedTurn) -> str:
    if session.title.strip() not in ("", DEFAULT_TITLE):
        return session.title
    lines = turn.shown_prompt.strip().splitlines()
    return lines[0][:TITLE_CHARS].strip() if lines else session.title
