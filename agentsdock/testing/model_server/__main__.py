"""``python -m agentsdock.testing.model_server``: the scripted model by itself, until ctrl-C."""

import argparse
import contextlib
import json
import pathlib

from agentsdock.testing.model_server.scripts import SCRIPTS
from agentsdock.testing.model_server.server import ModelServer


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="agentsdock.testing.model_server",
        description="A scripted model on the loopback: Messages API and Responses API.",
    )
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--scripts", type=pathlib.Path, help="more scripts: a JSON object")
    parser.add_argument("--list", action="store_true", help="print the names of the scripts")
    options = parser.parse_args()
    if options.list:
        print("\n".join(SCRIPTS))
        return
    more = json.loads(options.scripts.read_text(encoding="utf-8")) if options.scripts else {}
    with ModelServer(options.port, more) as server, contextlib.suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
