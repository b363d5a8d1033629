"""Every benchmark, one after the other: ``python -m benchmarks``; about half an hour.

Raw results go to ``benchmarks/results/``, their table into ``benchmarks/RESULTS.md`` below its
mark; what stands above the mark is written by hand.
"""

import json
import os
import pathlib
import subprocess
import sys

from benchmarks.report import report

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results"
MARK = "<!-- generated below -->\n"
PROGRAMS = {
    "parser": [str(HERE / "parser.py")],
    "store": [str(HERE / "store.py")],
    "timeline": [str(HERE / "timeline.py")],
    "guard": [str(HERE / "guard.py"), "--json"],
}


def run(name: str, command: list[str]) -> None:
    print(f"{name} ...", file=sys.stderr)
    environ = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        [sys.executable, *command], check=True, stdout=subprocess.PIPE, env=environ
    )
    (RESULTS / f"{name}.json").write_text(json.dumps(json.loads(done.stdout), indent=1) + "\n")


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    for name, command in PROGRAMS.items():
        run(name, command)
    # The client stays away for longer than the server lets it.
    run("driver", ["-m", "benchmarks.driver", "--stall", "15", *sys.argv[1:]])
    page = HERE / "RESULTS.md"
    head = page.read_text().partition(MARK)[0]
    page.write_text(head + MARK + "\n" + report(RESULTS))


if __name__ == "__main__":
    main()
