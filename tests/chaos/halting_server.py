"""The server, halted at one of its commits, so that it can be killed there.

``halting_server.py serve ...`` is ``agentsdock serve`` with these differences: each unit is a
commit of its own, tasks run in the order in which they became ready (so that the same requests
give the same commits), and every commit is told to the pipe that ``HALT_PIPE`` names, one line
each.  Before or after commit number N, by ``HALT_AT`` (``before N``, ``after N``), it tells
``halted``, its pid and the commit instead, and the writer goes no further.  All else goes on:
whoever has to be answered is answered.
"""

import os
import random
import threading
from collections.abc import Sequence

import apsw
import trio

from agentsdock.cli.main import main
from agentsdock.store import ledger, sqlite
from agentsdock.store.ledger import Claim, Finish, Outcome, Renew, Unit
from agentsdock.store.protocol import (
    Change,
    DropQueued,
    DropSession,
    KeepAnswer,
    PutQueued,
    PutSession,
)

HALTED = "halted"


def describe(unit: Unit) -> str:
    """What a unit makes durable, in words."""
    parts = [*(f"`{event.type}`" for event in unit.events), *map(_describe_change, unit.changes)]
    match unit.step:
        case Claim():
            parts.append("run opened")
        case Renew(run):
            parts.append(f"run {run.state.replace('_', ' ')}")
        case Finish():
            parts.append("run closed")
    return ", ".join(parts)


def _describe_change(change: Change) -> str:
    match change:
        case PutSession():
            return "chat"
        case DropSession():
            return "chat dropped"
        case PutQueued(turn):
            return "row paused" if turn.paused else "row"
        case DropQueued():
            return "row taken"
        case KeepAnswer(body=body):
            return "answer without event" if b'"event":null' in body else "answer"


class Commits:
    """Stands in for :func:`ledger.commit`."""

    def __init__(self, pipe: int, moment: str, number: int) -> None:
        self._pipe = pipe
        self._halt = (moment, number)
        self._commit = ledger.commit
        self._made = 0

    def __call__(self, db: apsw.Connection, units: Sequence[Unit], now: float) -> list[Outcome]:
        (unit,) = units
        self._made += 1
        self._stand("before", describe(unit))
        outcomes = self._commit(db, units, now)
        self._stand("after", describe(unit))
        return outcomes

    def _stand(self, moment: str, what: str) -> None:
        if self._halt == (moment, self._made):
            os.write(self._pipe, f"{HALTED} {os.getpid()} {what}\n".encode())
            threading.Event().wait()
        if moment == "after":
            os.write(self._pipe, f"{what}\n".encode())


class InOrder(random.Random):
    """Never tells Trio to turn a batch of tasks around."""

    def random(self) -> float:
        return 1.0


if __name__ == "__main__":
    moment, number = os.environ["HALT_AT"].split()
    ledger.commit = Commits(os.open(os.environ["HALT_PIPE"], os.O_WRONLY), moment, int(number))
    sqlite.GROUP_ROWS = 1
    trio._core._run._r = InOrder()
    main()
