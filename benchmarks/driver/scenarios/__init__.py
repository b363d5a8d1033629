"""Scenario name to what runs it: an argument namespace in, a JSON object out."""

import argparse
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.driver.scenarios.clients import reconnect, slow_client
from benchmarks.driver.scenarios.crash import crash
from benchmarks.driver.scenarios.faults import bad, cap
from benchmarks.driver.scenarios.load import concurrency, throughput
from benchmarks.driver.scenarios.overhead import overhead
from benchmarks.driver.scenarios.scale import scale
from benchmarks.driver.scenarios.stop import stop

Scenario = Callable[[argparse.Namespace], Awaitable[Any]]

SCENARIOS: dict[str, Scenario] = {
    "overhead": overhead,
    "throughput": throughput,
    "concurrency": concurrency,
    "stop": stop,
    "crash": crash,
    "reconnect": reconnect,
    "scale": scale,
    "bad": bad,
    "slow_client": slow_client,
    "cap": cap,
}
