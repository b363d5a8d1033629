"""Work that outlives the request which asked for it."""

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple

import outcome
import trio

from agentsdock.model.errors import Unavailable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def start_clean(nursery: trio.Nursery, work: Callable[[*Ts], Awaitable[Any]], *args: *Ts) -> None:
    """Start a task that inherits no context variables, so none of a web request's."""
    contextvars.Context().run(lambda: nursery.start_soon(work, *args))


async def hand_over(nursery: trio.Nursery, work: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Let ``nursery`` do the work and wait for it.

    A caller that is cancelled meanwhile leaves the work going; its errors come back to a
    caller that stays.
    """
    result: outcome.Outcome[T] | None = None
    done = trio.Event()

    async def run() -> None:
        nonlocal result
        try:
            result = outcome.Value(await work(*args))
        except Exception as error:
            result = outcome.Error(error)
        finally:
            done.set()

    start_clean(nursery, run)
    await done.wait()
    if result is None:
        raise Unavailable("the server is shutting down; try again in a moment")
    return result.unwrap()
