"""A CLI of any dialect that grows a hostile tree around itself, or plays along.

``[[fake ledger=PATH seed=N end=HOW]]`` in its prompt grows tree N of ``hostile_tree``, which
enters itself in the ledger, says ``grown``, and goes on as HOW says:

=========  ==============================================================
``result``  a successful result and exit status 0; the tree is left behind
``linger``  the same result, and no exit
``ask``     a question that nobody will answer, in the words of Cursor
``stay``    texts for ever
=========  ==============================================================

Every other prompt is one for ``fake_agent``.
"""

import itertools
import json
import os
import signal
import sys
import time

from hostile_tree import Ledger, plan, start

from agentsdock.testing import fake_agent

HEARTBEAT_SECONDS = 0.05


def main() -> int:
    args = sys.argv[1:]
    who = fake_agent.speaker(sys.argv[0])
    cli = fake_agent.DIALECTS[who](fake_agent.conversation(args))
    answer = fake_agent.probe_answer(who, args, cli.session_id)
    if answer is not None:
        print(answer, flush=True)
        return 0
    orders = fake_agent.Orders(fake_agent.read_prompt(args))
    if not orders.word("ledger"):
        return fake_agent.Turn(cli, orders, fake_agent.StepLog(orders.word("log"))).run()
    return hostile_turn(cli, orders)


def hostile_turn(cli: "fake_agent.Dialect", orders: fake_agent.Orders) -> int:
    ledger = Ledger(orders.word("ledger"))
    ledger.enter()
    say(cli.init())
    grow(orders.count("seed"), ledger)
    say(cli.text("grown"))
    match orders.word("end"):
        case "result":
            say(cli.result("done", error=False, subtype=""))
            return 0
        case "linger":
            say(cli.result("done", error=False, subtype=""))
        case "ask":
            query = {"id": 1, "shellRequestQuery": {"args": {"command": "true"}}}
            kind = {"subtype": "request", "query_type": "shellRequestQuery", "query": query}
            say([{"type": "interaction_query", **kind, "session_id": cli.session_id}])
        case "stay":
            for number in itertools.count():
                say(cli.text(f"#{number:06d}"))
                time.sleep(HEARTBEAT_SECONDS)
    while True:
        signal.pause()


def grow(seed: int, ledger: Ledger) -> None:
    nodes = plan(seed)
    if "deaf" in nodes[0].traits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grown, ready = os.pipe()
    for child in nodes[0].children:
        start(child, ledger, ready)
    for _ in nodes[1:]:
        os.read(grown, 1)


def say(events: "list[fake_agent.Event]") -> None:
    for event in events:
        os.write(1, json.dumps(event).encode() + b"\n")
