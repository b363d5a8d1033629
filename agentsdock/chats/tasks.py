"""Work that outlives the request which asked for it."""

import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, TypeVarTuple

import outcome
import trio

from agentsdock.logs import get_logger, where
from agentsdock.model.errors import Unavailable

log = get_logger()

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def start_clean(nursery: trio.Nursery, work: Callable[[*Ts], Awaitable[Any]], *args: *Ts) -> None:
    """Start a task that inherits no context variables, so none of a web request's."""
    contextvars.Context().run(lambda: nursery.start_soon(work, *args))


@contextlib.contextmanager
def contained(what: str, **fields: str) -> Iterator[None]:
    """Keep a bug in the work for one turn from ending the others: log it and go on."""
    try:
        yield
    except Exception as error:
        log.error(what, error=where(error), **fields)


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
