"""The command line of the driver."""

import argparse
import pathlib
import sys

from benchmarks.driver.profiles import PROFILES

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SYSTEM_PYTHON = pathlib.Path("/usr/bin/python3")


def parser(scenarios: list[str]) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.driver",
        description="Start a server, run turns of a fake agent through it, print JSON.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    fake_python = str(SYSTEM_PYTHON if SYSTEM_PYTHON.exists() else sys.executable)
    add = p.add_argument
    add("--profile", choices=PROFILES, default="plain", help="how to start the server")
    add("--server-cmd", default="", help="its command; {python} {port} {state} ... are filled in")
    add("--server-cwd", default=str(PROJECT), help="its folder")
    add("--server-python", default=sys.executable, help="{python}")
    add("--import-module", default="", help="module whose import is timed")
    add("--env", action="append", default=[], metavar="K=V", help="one more of its variables")
    add("--backend", default="", help="claude, codex or cursor; the profile's by default")
    add("--port", type=int, default=17850, help="{port}")
    add("--token", default="bench-token-0123456789", help="{token}")
    add("--cap", type=int, default=64, help="{cap}: how many turns may run at once")
    add("--work", default="", help="scratch folder; a temporary one by default")
    add("--fake-python", default=fake_python, help="interpreter of the fake agent")
    add("--only", default=",".join(scenarios), help="scenarios to run")
    add("--case", default="", help="of stop, crash and bad only the cases with this in their name")
    add("--reps", type=int, default=100, help="turns of overhead")
    add("--heavy-reps", type=int, default=3, help="rounds of the large loads")
    add("--stop-reps", type=int, default=10, help="stops of each case")
    add("--crash-reps", type=int, default=3, help="crashes of each case")
    add("--start-reps", type=int, default=10, help="starts of the server")
    add("--fault-wait", type=float, default=15.0, help="seconds that a faulty turn may take")
    add("--scale", type=float, default=1.0, help="shrink the large loads by this factor")
    add("--stall", type=float, default=0.0, help="seconds that the slow client stays away")
    add("--events-per-line", type=int, default=0, help="the profile's by default")
    add("--out", default="", help="file for the JSON, written after each scenario")
    return p


def parse(scenarios: list[str], argv: list[str] | None = None) -> argparse.Namespace:
    p = parser(scenarios)
    args = p.parse_args(argv)
    profile = PROFILES[args.profile]
    args.server_cmd = args.server_cmd or profile.command
    args.import_module = args.import_module or profile.module
    args.backend = args.backend or profile.backend
    args.events_per_line = args.events_per_line or profile.events_per_line
    args.crowded_lines = profile.crowded_lines
    args.environ = {**profile.environ, **dict(pair.split("=", 1) for pair in args.env)}
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(scenarios):
        p.error(f"no such scenario: {', '.join(sorted(unknown))}")
    return args
