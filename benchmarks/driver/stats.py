"""Measured values as the few numbers that a result keeps."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

FEW = 5


def spread(
    values: Iterable[float | None], scale: float = 1000.0, digits: int = 1
) -> dict[str, Any]:
    """Count, median, p99 and range; of few values each one too.  Seconds in, ms out."""
    measured = [value for value in values if value is not None]
    if not measured:
        return {"n": 0}
    ordered = sorted(measured)
    last = len(ordered) - 1
    found: dict[str, Any] = {
        "n": len(ordered),
        "median": round(statistics.median(ordered) * scale, digits),
        "p99": round(ordered[min(last, round(0.99 * last))] * scale, digits),
        "min": round(ordered[0] * scale, digits),
        "max": round(ordered[-1] * scale, digits),
    }
    if len(measured) <= FEW:
        found["each"] = [round(value * scale, digits) for value in measured]
    return found


def plain(values: Iterable[float | None], digits: int = 2) -> dict[str, Any]:
    """A spread in the unit of the values."""
    return spread(values, scale=1.0, digits=digits)


def gaps(seen: Sequence[int | None], wanted: Iterable[int]) -> tuple[int, int]:
    """(lost, doubled) sequence numbers; passing events have none."""
    numbers = [seq for seq in seen if seq]
    return len(set(wanted) - set(numbers)), len(numbers) - len(set(numbers))
