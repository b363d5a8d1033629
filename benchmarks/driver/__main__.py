"""Run the scenarios and print their results as one JSON object."""

import argparse
import asyncio
import json
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

from benchmarks.driver.options import parse
from benchmarks.driver.scenarios import SCENARIOS


async def run(args: argparse.Namespace) -> dict[str, Any]:
    machine = {
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "load_before": os.getloadavg(),
    }
    result: dict[str, Any] = {
        "machine": machine,
        "profile": args.profile,
        "backend": args.backend,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    for name in args.only:
        began = time.time()
        print(f"# {name} ...", file=sys.stderr, flush=True)
        try:
            result[name] = await SCENARIOS[name](args)
        except Exception as error:  # what the others measured is kept
            result[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(f"# {name} {time.time() - began:.0f} s", file=sys.stderr, flush=True)
        if args.out:
            pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    return result


def main() -> None:
    args = parse(list(SCENARIOS))
    if args.work:
        result = asyncio.run(run(args))
    else:
        with tempfile.TemporaryDirectory(prefix="agentsdock-bench-") as work:
            args.work = work
            result = asyncio.run(run(args))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
