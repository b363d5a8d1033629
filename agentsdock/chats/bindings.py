"""What a turn does to the chat's hold on the CLI's own session.  Pure."""

from attrs import evolve

from agentsdock.backends.protocol import Envelope
from agentsdock.model.sessions import ProviderBinding, Session
from agentsdock.model.usage import Usage, added

RESUMES_BEFORE_ROLLOVER = 2


def with_binding(session: Session, backend: str, binding: ProviderBinding) -> Session:
    bound: Session = evolve(session, **{backend: binding})  # type: ignore[arg-type]
    return bound


def initialised(session: Session, backend: str, provider_id: str) -> Session:
    """A valid init came.  A changed id forgets which instructions the old one was given."""
    binding = session.binding(backend)
    if binding.session_id == provider_id:
        binding = evolve(binding, failed_resumes=0)
    else:
        # A fork's own session counts what its parent's had used.
        binding = ProviderBinding(
            session_id=provider_id, used=binding.used if session.fork_from else None
        )
    return evolve(with_binding(session, backend, binding), locked=True, fork_from=None)


def succeeded(session: Session, backend: str, envelope: Envelope) -> Session:
    """Commit what the successful turn was told."""
    binding = evolve(
        session.binding(backend),
        instruction_hash=envelope.instruction_hash,
        instruction_version=envelope.instruction_version,
        failed_resumes=0,
    )
    session = with_binding(session, backend, binding)
    return evolve(session, memory_seed_used=True) if envelope.used_memory else session


def used(session: Session, backend: str, usage: Usage | None, total: Usage | None) -> Session:
    """``usage`` is the turn's, ``total`` the new total of the CLI's session, if it tells one."""
    session = evolve(session, usage=added(session.usage, usage))
    if total is None:
        return session
    return with_binding(session, backend, evolve(session.binding(backend), used=total))


def resume_failed(session: Session, backend: str) -> Session:
    """A resumed turn failed of its own accord before the CLI said that it knows the id."""
    binding = session.binding(backend)
    return with_binding(
        session, backend, evolve(binding, failed_resumes=binding.failed_resumes + 1)
    )


def must_roll_over(session: Session) -> bool:
    """Whether the stored id failed so often that the next turn starts a fresh session."""
    return session.binding().failed_resumes >= RESUMES_BEFORE_ROLLOVER


def rolled_over(session: Session, memory: str | None) -> Session:
    """Start afresh, with bounded memory of what was said."""
    return evolve(
        with_binding(session, session.backend, ProviderBinding()),
        fork_from=None,
        memory_seed=memory,
        memory_seed_used=False,
    )
