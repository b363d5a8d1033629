"""The boot sweep: ends what earlier lives of this server left behind, and says what it was.

Found by the run marker in the environment or by a recorded (pid, start ticks), then by descent
and by session; never by name.  On macOS by marker only.
"""

from collections.abc import Iterable

import trio
from attrs import frozen

from agentsdock.guard.hunt import Ended, Hunt
from agentsdock.guard.orphans import end_marked
from agentsdock.guard.process_guard import LINUX
from agentsdock.guard.procs import Process, helper_name

SWEEP_SECONDS = 5.0


@frozen
class SweepRecord:
    """A guard or a CLI as it was recorded: ``start_ticks`` is field 22 of ``/proc/PID/stat``."""

    pid: int
    start_ticks: int


@frozen
class SweepResult:
    """``survivors`` are pids that still lived when the bounded time was over."""

    ended: tuple[Ended, ...]
    survivors: tuple[int, ...]


async def sweep(
    records: Iterable[SweepRecord], *, marker_prefix: str, seconds: float = SWEEP_SECONDS
) -> SweepResult:
    """End all that carries a marker with this prefix or is on record.

    Call before the first launch of this life.  Searches until nothing is found, at most
    ``seconds``; never ends this process, its ancestors or its zygote.  Raises ValueError for an
    empty prefix, which would match every marker.
    """
    if not marker_prefix:
        raise ValueError("the marker prefix must not be empty")
    if not LINUX:
        killed, left = await trio.to_thread.run_sync(end_marked, marker_prefix, seconds)
        return SweepResult(tuple(Ended(pid, 0) for pid in killed), left)
    recorded = {(record.pid, record.start_ticks) for record in records}

    def on_record(process: Process) -> bool:
        return (process.pid, process.start_ticks) in recorded

    ours = helper_name()

    def wanted(process: Process, marker: str | None) -> bool:
        marked = (
            marker is not None and marker.startswith(marker_prefix) and not marker.endswith(ours)
        )
        return marked or on_record(process)

    search = Hunt(wanted, leads=on_record)
    survivors = await trio.to_thread.run_sync(search.run, seconds)
    return SweepResult(tuple(search.ended), survivors)
