"""A program that grows a random tree of processes which do all they can to stay.

``hostile_tree.py SEED LEDGER ENDING``: the same seed grows the same tree.  Every process writes
``pid start_ticks`` to the ledger before it does anything else, and ends by itself after two
minutes, so that a failed test costs the machine no more.  When all are there the root says
``up`` and then, by ENDING, exits with status 0 (``exit``) or stays (``stay``).
Standard library only.
"""

import os
import random
import signal
import sys
import time
from typing import NoReturn

LIFE_SECONDS = 120
TRAITS = ("setsid", "daemon", "deaf", "stopped", "storm")


class Node:
    def __init__(self, traits: frozenset[str]) -> None:
        self.traits = traits
        self.children: list[Node] = []


def plan(seed: int) -> list[Node]:
    """All nodes, the root first."""
    choose = random.Random(seed)
    nodes = [Node(frozenset({"deaf"}) if choose.random() < 0.5 else frozenset())]
    storms = 0
    for _ in range(choose.randint(1, 24)):
        traits = {trait for trait in TRAITS if choose.random() < 0.25}
        if "storm" in traits:
            storms += 1
            traits -= {"storm"} if storms > 2 else {"stopped"}
        node = Node(frozenset(traits))
        parents = [other for other in nodes if "storm" not in other.traits]
        choose.choice(parents).children.append(node)
        nodes.append(node)
    return nodes


class Ledger:
    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def enter(self) -> None:
        signal.alarm(LIFE_SECONDS)
        with open("/proc/self/stat") as stat:
            began = stat.read().rsplit(")", 1)[1].split()[19]
        os.write(self._fd, f"{os.getpid()} {began}\n".encode())


def recorded(path: str) -> set[tuple[int, int]]:
    """Every (pid, start ticks) in a ledger."""
    with open(path) as lines:
        return {(int(pid), int(began)) for pid, began in map(str.split, lines)}


def start(node: Node, ledger: Ledger, ready: int) -> None:
    """Fork a node and all that is below it; a daemon by way of a parent that leaves."""
    pid = os.fork()
    if pid:
        if "daemon" in node.traits:
            os.waitpid(pid, 0)
        return
    ledger.enter()
    if "daemon" in node.traits:
        os.setsid()
        if os.fork():
            os._exit(0)
        ledger.enter()
    live(node, ledger, ready)


def live(node: Node, ledger: Ledger, ready: int) -> NoReturn:
    if "setsid" in node.traits and os.getpid() != os.getpgrp():
        os.setsid()
    if "deaf" in node.traits:
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
    for child in node.children:
        start(child, ledger, ready)
    os.write(ready, b"x")
    if "storm" in node.traits:
        storm(ledger)
    if "stopped" in node.traits:
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        signal.pause()


def storm(ledger: Ledger) -> NoReturn:
    """Never the same process for long, and each in a session of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    until = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)
        ledger.enter()
        os.setsid()
        time.sleep(0.0005)
    os._exit(0)


def main(seed: int, path: str, ending: str) -> NoReturn:
    ledger = Ledger(path)
    ledger.enter()
    nodes = plan(seed)
    if "deaf" in nodes[0].traits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grown, ready = os.pipe()
    for child in nodes[0].children:
        start(child, ledger, ready)
    for _ in nodes[1:]:
        os.read(grown, 1)
    os.write(1, b"up\n")
    if ending == "exit":
        os._exit(0)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
