"""The start of a server life: end what the last one left running, and say so."""

import trio

from agentsdock.chats.chat import Chat
from agentsdock.chats.registry import Registry, encoded
from agentsdock.guard.sweep import SweepRecord, SweepResult, sweep
from agentsdock.logs import get_logger
from agentsdock.model.codes import Code
from agentsdock.model.events import Draft
from agentsdock.model.turns import Run
from agentsdock.store.protocol import DropSession, Loaded, StoreError

RETRY_SECONDS = 5.0
log = get_logger()


async def recover(
    registry: Registry, loaded: Loaded, server_identity: str, nursery: trio.Nursery
) -> None:
    """Sweep leftovers, then give every open run the terminal event that it lacks.

    What was accepted is never replayed; waiting rows stay and are started by the drainer.
    Where the store has no room for an ending, ``nursery`` goes on trying: until then the store
    starts nothing else in that chat.
    """
    for damaged in loaded.set_aside:
        log.error("stored row set aside", kind=damaged.kind, key=damaged.key, error=damaged.error)
    records = [record for run in loaded.open_runs for record in _records(run)]
    swept = await sweep(records, marker_prefix=f"{server_identity}:")
    if swept.ended:
        log.warning("boot sweep ended leftovers", processes=len(swept.ended))
    for session in loaded.sessions:
        if session.initialising:
            await _remove_half_fork(registry, session.id)
    for run in loaded.open_runs:
        chat = registry.require(run.session_id)
        if not await _close(registry, chat, run, swept):
            nursery.start_soon(_close_later, registry, chat, run, swept)


async def _remove_half_fork(registry: Registry, session_id: str) -> None:
    try:
        await registry.store.append(session_id, (), [DropSession(session_id)])
    except StoreError as error:
        # It stays hidden; the next start tries again.
        log.warning("half a fork is left", chat=session_id, error=str(error))


async def _close(registry: Registry, chat: Chat, run: Run, swept: SweepResult) -> bool:
    try:
        await registry.store.finish(run, encoded(chat, [_closing(run, swept)]))
    except StoreError as error:
        log.warning("turn end waits for the store", run=run.id, error=str(error))
        return False
    return True


async def _close_later(registry: Registry, chat: Chat, run: Run, swept: SweepResult) -> None:
    while True:
        await trio.sleep(RETRY_SECONDS)
        if chat.gone or await _close(registry, chat, run, swept):
            return


def _records(run: Run) -> list[SweepRecord]:
    known = ((run.guard_pid, run.guard_start), (run.cli_pid, run.cli_start))
    return [SweepRecord(pid, start) for pid, start in known if pid and start]


def _closing(run: Run, swept: SweepResult) -> Draft:
    return Draft(
        "turn_stopped",
        {
            "run_id": run.id,
            "backend": run.backend,
            "code": Code.SERVER_RESTART,
            "message": "The server ended while this turn ran. It is not run again by itself.",
            "stopped": True,
            "is_error": False,
            "result_text": "",
            "exit_code": None,
            "recovered_after_restart": True,
            "tree_empty": not swept.survivors,
            **run.meta,
        },
    )
