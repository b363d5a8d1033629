"""Chats, events and runs to fill a store with."""

from typing import Any

from agentsdock.model.events import Committed, Draft, Encoded, encode
from agentsdock.model.sessions import Session
from agentsdock.model.turns import QueuedTurn, Run
from agentsdock.store.protocol import PutSession, Store

T0 = "2026-01-01T00:00:00Z"


def sid(number: int = 0) -> str:
    return f"sess_{number:016x}"


def rid(number: int = 0) -> str:
    return f"run_{number:016x}"


def qid(number: int = 0) -> str:
    return f"queued_{number:016x}"


def chat(number: int = 0, **fields: Any) -> Session:
    return Session(sid(number), T0, T0, **fields)


def event(
    text: str = "hello",
    *,
    kind: str = "assistant_text",
    run: str | None = None,
    ts: str = T0,
    session: str = "",
    **fields: Any,
) -> Encoded:
    run_id = {} if run is None else {"run_id": run}
    return encode(session or sid(), Draft(kind, {"text": text, **run_id, **fields}), ts)


def texts(committed: list[Committed]) -> list[str]:
    return [row.decode()["text"] for row in committed]


def seqs(committed: list[Committed]) -> list[int]:
    return [row.seq for row in committed]


def run(number: int = 0, session: int = 0, **fields: Any) -> Run:
    return Run(
        **{
            "id": rid(number),
            "session_id": sid(session),
            "backend": "cursor",
            "owner": "server-1",
            "started_at": T0,
            **fields,
        }
    )


def started(number: int = 0) -> Encoded:
    return event("go", kind="turn_started", run=rid(number))


def ended(number: int = 0, kind: str = "turn_finished") -> Encoded:
    return event("", kind=kind, run=rid(number), result_text="done")


def queued(number: int = 0, session: int = 0, position: float = 0.0, **fields: Any) -> QueuedTurn:
    return QueuedTurn(qid(number), sid(session), position, "do it", T0, **fields)


async def create(store: Store, number: int = 0, **fields: Any) -> str:
    await store.append(sid(number), (), [PutSession(chat(number, **fields))])
    return sid(number)


async def everything(store: Store, session_id: str) -> list[Committed]:
    found: list[Committed] = []
    while page := await store.read_from(session_id, found[-1].seq if found else 0):
        found += page
    return found
