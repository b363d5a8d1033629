"""Wall-clock stamps as the wire knows them: UTC, whole seconds, ``Z`` suffix."""

import datetime
import functools
import time


@functools.lru_cache(maxsize=4)
def _stamp(second: int) -> str:
    when = datetime.datetime.fromtimestamp(second, datetime.UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_now() -> str:
    return _stamp(int(time.time()))


def iso_at(epoch: float) -> str:
    return _stamp(int(epoch))
