"""The start of a server life: end what the last one left running, and say so."""

from agentsdock.chats.registry import Registry, encoded
from agentsdock.guard.sweep import SweepRecord, SweepResult, sweep
from agentsdock.logs import get_logger
from agentsdock.model.codes import Code
from agentsdock.model.events import Draft
from agentsdock.model.turns import Run
from agentsdock.store.protocol import Loaded

log = get_logger()


async def recover(registry: Registry, loaded: Loaded, server_identity: str) -> None:
    """Sweep leftovers, then give every open run the terminal event that it lacks.

    What was accepted is never replayed; waiting rows stay and are started by the dispatcher.
    """
    swept = await sweep(
        [_record(run) for run in loaded.open_runs], marker_prefix=f"{server_identity}:"
    )
    if swept.ended:
        log.warning("boot sweep ended leftovers", processes=len(swept.ended))
    for run in loaded.open_runs:
        chat = registry.get(run.session_id)
        if chat is not None:
            await registry.store.finish(run, encoded(chat, [_closing(run, swept)]))


def _record(run: Run) -> SweepRecord:
    return SweepRecord(
        guard_pid=run.guard_pid,
        guard_start=run.guard_start,
        cli_pid=run.cli_pid,
        cli_start=run.cli_start,
    )


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
