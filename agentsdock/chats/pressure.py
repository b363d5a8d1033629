"""When a turn must wait before it may start: the cap on live turns, and low memory."""

import pathlib

from agentsdock.config import Settings

MEMORY_POLL_SECONDS = 5.0
_MEMINFO = pathlib.Path("/proc/meminfo")


def available_mem_mb() -> int | None:
    """Memory that a new process could take, in MB; None where the system does not tell."""
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def reason_to_wait(settings: Settings, live: int) -> str | None:
    """Why no turn may start now, for a person; None if one may.  Zero switches a limit off."""
    cap = settings.max_active_runs
    if cap and live >= cap:
        return f"{live} turns are running, which is the limit; this one starts when one ends."
    floor = settings.min_start_available_mem_mb
    free = available_mem_mb() if floor else None
    if free is not None and free < floor:
        return (
            f"Only {free} MB of memory are available and {floor} MB are asked for; "
            "this turn starts when there is enough."
        )
    return None
