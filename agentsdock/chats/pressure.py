"""When a turn must wait before it may start: the cap on live turns, and low memory."""

import pathlib

import trio
from attrs import define, field

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


@define(eq=False)
class Slots:
    """The places of live turns.  Who waits for one is woken when something changes."""

    settings: Settings
    taken: int = 0
    held: str | None = None
    """Why rows wait that could start but for the pressure."""
    changed: trio.Event = field(factory=trio.Event)

    def take(self) -> None:
        self.taken += 1

    def free(self) -> None:
        self.taken -= 1
        self.wake()

    def wake(self) -> None:
        """Something changed that may let a waiting turn start."""
        self.changed.set()

    def reason_to_wait(self, *, after_one_ends: bool = False) -> str | None:
        return reason_to_wait(self.settings, self.taken - after_one_ends)
