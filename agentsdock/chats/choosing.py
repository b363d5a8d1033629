"""Which CLI, model and effort a chat uses: chosen for the chat, or by one of its turns."""

from attrs import evolve

from agentsdock.backends.efforts import choices, spelled
from agentsdock.model.errors import BadRequest, Conflict
from agentsdock.model.events import Draft
from agentsdock.model.sessions import BACKENDS, Session
from agentsdock.model.turns import QueuedTurn


def with_runtime(session: Session, turn: QueuedTurn) -> Session:
    """The chat with what the turn says of backend, model and effort; ``""`` clears.

    Raises BadRequest and Conflict.
    """
    session = switch_backend(session, turn.backend)
    if turn.model is not None:
        session = evolve(session, model=turn.model.strip() or None)
    if turn.effort is not None:
        session = evolve(session, effort=spelled(session.backend, turn.effort))
    return with_fitting_effort(session)


def switch_backend(session: Session, backend: str | None) -> Session:
    """The chat under another backend; each keeps its own provider id."""
    if backend is None or backend == session.backend:
        return session
    require_backend(backend)
    if session.backend_locked:
        raise Conflict(
            f"this chat is bound to {session.backend}; fork it or start a new chat to use {backend}"
        )
    return evolve(session, backend=backend, model=None, effort=None)


def backend_changed(old: str, new: str) -> Draft:
    return Draft("backend_changed", {"old": old, "new": new})


def require_backend(backend: str) -> None:
    if backend not in BACKENDS:
        raise BadRequest(f"unknown backend {backend!r}; it is one of {', '.join(BACKENDS)}")


def require_effort(session: Session, effort: object) -> None:
    """Raises BadRequest for an effort that was asked for and does not go with the chat's model.

    Anything but a text asks for none.
    """
    wanted = spelled(session.backend, effort) if isinstance(effort, str) else None
    known = choices(session.backend, session.model)
    if wanted is not None and known is not None and wanted not in known:
        raise BadRequest(
            f"{session.model or session.backend} has no effort {wanted!r}; "
            f"it has {', '.join(known)}"
        )


def with_fitting_effort(session: Session) -> Session:
    """The chat without an effort that its model does not have: that of an earlier model, say."""
    known = choices(session.backend, session.model)
    if session.effort is None or known is None or session.effort in known:
        return session
    return evolve(session, effort=None)
