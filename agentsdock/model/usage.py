"""Tokens and money that turns have used, as far as the CLIs tell.  Pure."""

from typing import Any

from attrs import frozen

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@frozen
class Usage:
    """Token counts, cached input apart from other input; ``cost_usd`` where the CLI tells it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None


def added(before: Usage | None, usage: Usage | None) -> Usage | None:
    """Both together; what neither of them tells stays unknown."""
    if before is None or usage is None:
        return usage or before
    counts = {name: _sum(getattr(before, name), getattr(usage, name)) for name in _COUNTS}
    return Usage(**counts, cost_usd=_sum(before.cost_usd, usage.cost_usd))


def since(before: Usage | None, total: Usage | None) -> Usage | None:
    """What came on top of an earlier total.  A lower count began anew."""
    if before is None or total is None:
        return total
    counts = {name: _rest(getattr(before, name), getattr(total, name)) for name in _COUNTS}
    return Usage(**counts, cost_usd=total.cost_usd)


def usage_fields(usage: Usage | None) -> dict[str, Any]:
    """The counts that are known, under the names of the wire."""
    if usage is None:
        return {}
    told = {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cache_read_tokens,
        "cache_write_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }
    fields: dict[str, Any] = {name: count for name, count in told.items() if count is not None}
    if fields:
        fields["total_tokens"] = sum(fields.values())
    if usage.cost_usd is not None:
        fields["cost_usd"] = usage.cost_usd
    return fields


def _sum(one: Any, other: Any) -> Any:
    return other if one is None else one + (other or 0)


def _rest(before: int | None, total: int | None) -> int | None:
    if before is None or total is None:
        return total
    return total - before if total >= before else total
