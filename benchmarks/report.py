"""The table of RESULTS.md: one row per target, ours beside the reference's, with the ratio.

python -m benchmarks.report benchmarks/results
"""

import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

HERE = pathlib.Path(__file__).parent
DASH = "-"


@frozen
class Row:
    """One target: how its figure is taken from a driver's JSON, and what it should be."""

    number: int
    what: str
    unit: str
    target: str
    take: Callable[[dict[str, Any]], float | str]


def median(*path: str) -> Callable[[dict[str, Any]], float]:
    def take(found: Any) -> float:
        for key in path:
            found = found[key]
        return float(found["median"] if isinstance(found, dict) else found)

    return take


def worst(*path: str) -> Callable[[dict[str, Any]], float]:
    def take(found: Any) -> float:
        for key in path:
            found = found[key]
        return float(found)

    return take


def cases(key: str, *names: str) -> Callable[[dict[str, Any]], float | str]:
    """The slowest median of several stop cases; ``never`` where something was left."""

    def take(found: dict[str, Any]) -> float | str:
        stops = [found["stop"][name] for name in names]
        if any(stop["orphans_5s"] for stop in stops):
            return "never"
        return float(max(stop[key]["median"] for stop in stops))

    return take


def crash(key: str, signal: str) -> Callable[[dict[str, Any]], float | str]:
    def take(found: dict[str, Any]) -> float | str:
        each = [
            life
            for name, case in found["crash"].items()
            if name.startswith(signal)
            for life in case["each"]
        ]
        values = [life[key] for life in each]
        late = [value for value in values if not isinstance(value, int | float)]
        return "never" if late else float(max(values))

    return take


def lost(found: dict[str, Any]) -> float:
    """Events lost, doubled or out of order, over reconnects and crashes."""
    reconnects = sum(
        sum(case[key])
        for case in found["reconnect"].values()
        for key in ("lost", "duplicated", "out_of_order")
    )
    crashes = sum(
        sum(life["rest_lost_dup"]) + life["ws_not_in_rest"] + (life["stored_torn"] or 0)
        for case in found["crash"].values()
        for life in case["each"]
    )
    return float(reconnects + crashes)


def stalled(found: dict[str, Any]) -> str:
    case = found["slow_client"]["with one stalled client"]
    alone = found["slow_client"]["alone"]
    extra = case["rss_growth_MB"]["median"] - alone["rss_growth_MB"]["median"]
    told = sorted({str(client.get("closed") or "never told") for client in case["stalled_client"]})
    return f"{max(extra, 0):.1f} MB more, {', '.join(told)}"


def idle_rss(found: dict[str, Any]) -> float:
    scale = found["scale"]
    return float(scale.get("idle_rss_tree_MB", scale["idle_rss_MB"])["median"])


POLITE = ("no child", "plain child")
HOSTILE = (
    "SIGTERM-ignoring child",
    "setsid double-fork",
    "setsid double-fork ignoring SIGTERM",
)
KB, MB = "20000x1KB", "50x1MB"
ROWS = (
    Row(1, "Turn overhead", "ms", "0.4x", median("overhead", "overhead")),
    Row(
        2,
        "The same with 1,000 chats",
        "ms",
        "row 1 + 3 ms",
        median("scale", "overhead_with_sessions", "overhead"),
    ),
    Row(
        3,
        "CLI's first line to first event",
        "ms",
        "1.0x",
        median("overhead", "spawn_to_first_event"),
    ),
    Row(
        4,
        "20,000 lines of 1 KB",
        "lines/s",
        "20x",
        median("throughput", KB, "cli_lines_per_s"),
    ),
    Row(
        5,
        "The same with 1,000 chats",
        "lines/s",
        "0.9x of row 4",
        worst("scale", "throughput_with_sessions", "lines_per_s"),
    ),
    Row(6, "50 lines of 1 MB", "lines/s", "4x", median("throughput", MB, "cli_lines_per_s")),
    Row(7, "Peak RSS in row 4", "MB", "0.4x", median("throughput", KB, "rss_peak_MB")),
    Row(7, "Peak RSS in row 6", "MB", "0.4x", median("throughput", MB, "rss_peak_MB")),
    Row(8, "50 turns at once", "s", "1.5x of bare", median("concurrency", "50", "total_s")),
    Row(8, "50 bare CLIs at once", "s", DASH, median("concurrency", "50", "bare_total_s")),
    Row(
        9,
        "Worst health answer in row 8",
        "ms",
        "at most 250",
        worst("concurrency", "50", "health_ms_worst"),
    ),
    Row(10, "Stop, polite CLI: terminal event", "ms", "1.0x", cases("stopped_event_ms", *POLITE)),
    Row(11, "Stop, hostile child: all gone", "ms", "at most 500", cases("all_gone_ms", *HOSTILE)),
    Row(
        12,
        "Stop while a daemon holds stdout",
        "ms",
        "at most 500",
        median("stop", "setsid double-fork holds stdout", "stopped_event_ms"),
    ),
    Row(
        13,
        "Server SIGKILLed: all gone (worst)",
        "s",
        "at most 0.1",
        crash("all_gone_after_signal_s", "SIGKILL"),
    ),
    Row(
        14,
        "Server SIGTERMed: exit (worst)",
        "s",
        "at most 3",
        crash("server_exit_s", "SIGTERM"),
    ),
    Row(15, "Events lost, doubled, out of order", "", "0", lost),
    Row(16, "Start to health", "ms", "0.4x", median("scale", "startup_empty_ms")),
    Row(16, "Idle RSS, all processes", "MB", "0.5x", idle_rss),
    Row(
        17,
        "List of 1,000 chats, summary",
        "ms",
        "0.4x",
        median("scale", "list_summary_1000_ms"),
    ),
    Row(
        18,
        "Chat of 50,000 events: tail page",
        "ms",
        "0.02x",
        median("scale", "detail_tail_100_ms"),
    ),
    Row(
        18,
        "The same with 200,000 events",
        "ms",
        "the same",
        median("scale", "longer", "detail_tail_100_ms"),
    ),
    Row(19, "A client that stops reading", "", "at most 2 MB, 1013", stalled),
    Row(
        20,
        "Private memory per live turn, of 50",
        "MB",
        "at most 1.5",
        worst("concurrency", "50", "private_per_turn_MB"),
    ),
)


def table(ours: dict[str, Any], reference: dict[str, Any]) -> Iterator[str]:
    yield "| # | What | Unit | Reference | Ours | Ratio | Target |"
    yield "|---|---|---|---|---|---|---|"
    for row in ROWS:
        theirs, mine = (_taken(row, found) for found in (reference, ours))
        yield (
            f"| {row.number} | {row.what} | {row.unit} | {_shown(theirs)} | {_shown(mine)} |"
            f" {_ratio(mine, theirs)} | {row.target} |"
        )


def _taken(row: Row, found: dict[str, Any]) -> float | str:
    try:
        return row.take(found)
    except KeyError:
        return DASH


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _ratio(mine: float | str, theirs: float | str) -> str:
    if isinstance(mine, str) or isinstance(theirs, str) or not theirs:
        return DASH
    return f"{mine / theirs:.2f}x"


def parser_table(parser: dict[str, Any]) -> Iterator[str]:
    yield "| Lines | Reads of | Parser, us | json.loads, us | Times faster |"
    yield "|---|---|---|---|---|"
    for reads, mixes in parser.items():
        for name, found in mixes.items():
            yield (
                f"| {name}, {found['bytes_a_line']} bytes | {reads.removeprefix('reads of ')} |"
                f" {found['parser_us']} | {found['json_loads_us']} | {found['ratio']}x |"
            )


def store_line(store: dict[str, Any]) -> str:
    acks = store["acknowledged_single_events"]
    return (
        f"Acknowledged single events from 64 producers: {acks['ratio']:.2f}x the rate of one row"
        f" per transaction through a worker thread (target 3x); acknowledged after"
        f" {acks['ack_p50_ms']:.2f} ms at the median, {acks['ack_p99_ms']:.2f} ms at p99."
    )


def report(folder: pathlib.Path) -> str:
    """The generated part of RESULTS.md from the raw results in a folder."""
    reference = json.loads((HERE / "reference.json").read_text())
    driver, parser, store = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("driver", "parser", "store")
    )
    machine = driver["machine"]
    lines = [
        f"Measured {driver['when']} on {machine['cores']} cores, Python {machine['python']}.",
        "",
        *table(driver, reference),
        "",
        "Row 21, the stream parser alone against bare `json.loads` of the same lines"
        " (target 1.2x for text of 2 kB):",
        "",
        *parser_table(parser),
        "",
        f"Row 22. {store_line(store)}",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(pathlib.Path(sys.argv[1])))
