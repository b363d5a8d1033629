"""``/metrics`` in Prometheus form; the library is imported by the first who asks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quart import Blueprint

from agentsdock.web import figures

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from agentsdock.chats.dock import Dock

HEADERS = {
    "content-type": "text/plain; version=0.0.4; charset=utf-8",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


def blueprint(dock: "Dock") -> Blueprint:
    metrics = Blueprint("metrics", __name__)

    @metrics.get("/metrics")
    async def scrape() -> tuple[bytes, int, dict[str, str]]:
        from prometheus_client.exposition import generate_latest

        found = await figures.collect(dock)
        return generate_latest(_Once(found)), 200, HEADERS

    return metrics


class _Once:
    """What ``generate_latest`` asks a registry for."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        found = self._found
        house, process, limits = found["house"], found["process"], found["limits"]
        info = GaugeMetricFamily("agentsdock_info", "This server.", labels=["version"])
        info.add_metric([found["version"]], 1)
        yield info
        ready = GaugeMetricFamily(
            "agentsdock_backend_ready", "Whether a backend's CLI can run turns.", labels=["backend"]
        )
        for runtime in found["runtimes"]:
            ready.add_metric([runtime["backend"]], runtime["available"])
        yield ready
        drift = CounterMetricFamily(
            "agentsdock_stream_drift",
            "What the CLIs' streams held that this release does not know.",
            labels=["backend", "version", "kind", "name"],
        )
        for seen in house["drift"]:
            labels = [str(seen[name] or "") for name in ("backend", "version", "kind", "name")]
            drift.add_metric(labels, seen["count"])
        yield drift
        for name, told, value in (
            ("turns_running", "Turns that run.", house["active_count"]),
            ("turns_waiting", "Messages that wait.", sum(house["queued"].values())),
            ("turns_limit", "Turns that may run at once.", limits["start_max_active_runs"]),
            ("chats", "Chats, archived ones too.", found["chats"]),
            ("rows_set_aside", "Stored rows that could not be read.", house["set_aside"]["rows"]),
            ("load1", "Load of the host over a minute.", limits["load_1m"]),
            ("available_memory_megabytes", "Free for turns.", limits["available_mem_mb"]),
            ("uptime_seconds", "Since the start.", process["uptime_seconds"]),
            ("resident_memory_bytes", "Of the server itself.", process["resident_bytes"]),
            ("open_files", "Of the server itself.", process["open_files"]),
            ("database_bytes", "Size of the database.", found["store"].get("database")),
            ("database_log_bytes", "Size of its log.", found["store"].get("log")),
            ("free_disk_bytes", "Where the database lies.", found["store"].get("free")),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"agentsdock_{name}", told, value=value)
        yield CounterMetricFamily(
            "agentsdock_cpu_seconds", "Of the server itself.", value=process["cpu_seconds"]
        )
