"""File system work in a few threads of its own: one that hangs takes none from anybody else."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST = 8
_limiter = trio.CapacityLimiter(MOST)


async def in_thread(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run blocking work.  A cancelled caller does not wait for its end."""
    return await trio.to_thread.run_sync(work, *args, abandon_on_cancel=True, limiter=_limiter)
