"""SIGKILL of a writer: what was acknowledged is there, once, in order, without gaps."""

import os
import pathlib
import subprocess
import sys

import pytest
from store_samples import everything, sid

from agentsdock.store.sqlite import open_store

WRITER = """
import os, pathlib, sys
import trio
from agentsdock.store.sqlite import open_store
from store_samples import create, event, sid

CHATS = 8

async def write(store, number):
    while True:
        group = [event("x" * 300, session=sid(number)) for _ in range(1 + number)]
        committed = await store.append(sid(number), group)
        for row in committed:
            os.write(1, b"%d %d\\n" % (number, row.seq))

async def main(folder):
    async with open_store(folder) as store, trio.open_nursery() as nursery:
        known = {session.id for session in (await store.load()).sessions}
        for number in range(CHATS):
            if sid(number) not in known:
                await create(store, number)
            nursery.start_soon(write, store, number)

trio.run(main, pathlib.Path(sys.argv[1]))
"""


@pytest.mark.chaos
async def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(folder):
    here = pathlib.Path(__file__).resolve().parent
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent.parent}"}
    acknowledged = dict.fromkeys(range(8), 0)
    for life in range(6):
        told = dict.fromkeys(range(8), 0)
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)],
            stdout=subprocess.PIPE,
            env=environment,
        ) as writer:
            for count, line in enumerate(writer.stdout):
                if count == 200 + life * 137:
                    writer.kill()
                number, seq = map(int, line.split())
                # What was committed but not told before the kill only moves the first one on.
                assert seq == told[number] + 1 or (not told[number] and seq > acknowledged[number])
                told[number] = seq
        acknowledged = {number: max(last, told[number]) for number, last in acknowledged.items()}
    async with open_store(folder) as store:
        assert store.set_aside is None
        loaded = await store.load()
        for number, last in acknowledged.items():
            rows = await everything(store, sid(number))
            assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
            assert [row.decode()["seq"] for row in rows] == [row.seq for row in rows]
            assert len(rows) >= last > 0
            assert loaded.heads[sid(number)].seq == len(rows)
