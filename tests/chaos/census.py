"""Who of the processes that entered themselves in a ledger is alive."""

import os
from pathlib import Path

from hostile_tree import recorded

from agentsdock.guard import procs
from agentsdock.guard.process_guard import all_pids


def entered(folder: Path) -> set[tuple[int, int]]:
    return {one for ledger in folder.iterdir() for one in recorded(str(ledger))}


def living(folder: Path, marker_prefix: str) -> list[int]:
    """Pids that are on record or marked; -1 stands for those too quick to be seen."""
    size = _size(folder)
    known = entered(folder)
    line = procs.own_line()
    alive = [look for pid in all_pids() if (look := procs.look(pid)) and not look.dead]
    found = [
        process.pid
        for process in alive
        if (process.pid, process.start_ticks) in known
        or (process.pid not in line and _marked(process.pid, marker_prefix))
    ]
    return found if _size(folder) == size else [*found, -1]


def _marked(pid: int, prefix: str) -> bool:
    return (procs.marker_of(pid) or "").startswith(prefix)


def _size(folder: Path) -> int:
    return sum(os.stat(ledger).st_size for ledger in folder.iterdir())


def root(ledger: Path) -> tuple[int, int]:
    """The CLI of a tree: the first that entered itself."""
    pid, began = ledger.read_text().split("\n", 1)[0].split()
    return int(pid), int(began)
