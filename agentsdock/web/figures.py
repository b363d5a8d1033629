"""What this server is and does in figures: for the health page and for ``/metrics``."""

import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import trio

from agentsdock.model.sessions import BACKENDS
from agentsdock.web.health import job_guard

if TYPE_CHECKING:
    import pathlib

    from agentsdock.chats.dock import Dock

_BEGAN = time.monotonic()
_PAGE_BYTES = resource.getpagesize()


async def collect(dock: "Dock") -> dict[str, Any]:
    """Bytes and seconds; what this system does not tell is None."""
    house = dock.chats.health()
    return {
        "version": dock.identity.version,
        "house": house,
        "chats": dock.chats.count(),
        "limits": job_guard(dock.settings, house.get("available_mem_mb")),
        "runtimes": [dock.runtimes.diagnostic(name).public() for name in BACKENDS],
        "process": process(),
        "store": await trio.to_thread.run_sync(store_bytes, dock.settings.state_dir),
    }


def process() -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "uptime_seconds": time.monotonic() - _BEGAN,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "resident_bytes": _resident(used.ru_maxrss),
        "open_files": _count("/proc/self/fd"),
    }


def _resident(peak: int) -> int:
    """As it is now, or at its peak where the system tells no more."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return peak if sys.platform == "darwin" else peak * 1024


def _count(folder: str) -> int | None:
    try:
        return len(os.listdir(folder))
    except OSError:
        return None


def store_bytes(state_dir: "pathlib.Path") -> dict[str, int]:
    """Sizes of the database and of its log, and what is free where they lie."""
    sizes = {
        name: _size(state_dir / f"agentsdock.db{suffix}")
        for name, suffix in (("database", ""), ("log", "-wal"))
    }
    try:
        free = os.statvfs(state_dir)
    except OSError:
        return sizes
    return {**sizes, "free": free.f_bavail * free.f_frsize}


def _size(path: "pathlib.Path") -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
