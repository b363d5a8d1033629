"""Templates, and the worker threads in which they are filled.

Nothing of this is imported before somebody opens the page.
"""

import datetime
import functools
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import trio
from jinja2 import Environment, FileSystemLoader

from agentsdock.web.page import markdown, visible

P = ParamSpec("P")
T = TypeVar("T")

FOLDER = pathlib.Path(__file__).parent.parent / "templates"

_room = trio.CapacityLimiter(2)


async def beside(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Do it in a worker thread, so that a large text holds up nobody else."""
    return await trio.to_thread.run_sync(
        functools.partial(work, *args, **named), limiter=_room, abandon_on_cancel=False
    )


def fill(name: str, **values: Any) -> str:
    return environment().get_template(name).render(**values)


@functools.cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "bytes": in_bytes,
        "code": visible.code,
        "commands": commands,
        "count": in_thousands,
        "markdown": markdown.render,
        "shortened": markdown.shortened,
        "seconds": in_seconds,
        "shown": visible.prose,
        "tilde": tilde,
        "titled": titled,
    }
    return made


def titled(text: object) -> str:
    """A name of ours or of a person, on one line."""
    return visible.prose(" ".join(str(text).split()))


def commands(text: str) -> list[str]:
    """What stands between backticks and has an argument: what one can run."""
    return [found for found in re.findall("`([^`]+)`", text) if " " in found]


def tilde(path: str) -> str:
    """A path as people write it: their home is ``~``."""
    home = os.path.expanduser("~").rstrip("/")
    return f"~{path[len(home) :]}" if home and f"{path}/".startswith(f"{home}/") else path


def in_bytes(size: float | None) -> str:
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def in_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {rest} s"


def in_thousands(number: float | None) -> str:
    if number is None:
        return "?"
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1000:,.0f}k" if number < 1_000_000 else f"{number / 1e6:,.1f}M"


def since(stamp: str | None, now: datetime.datetime) -> str:
    """How long ago, as short as it can be said."""
    if not stamp:
        return ""
    then = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    seconds = max((now - then).total_seconds(), 0)
    for size, unit in (
        (86_400 * 365, "y"),
        (86_400 * 7, "w"),
        (86_400, "d"),
        (3600, "h"),
        (60, "m"),
    ):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return "now"
