"""Speed of the store: ``python benchmarks/store.py [--json FILE] [--folder DIR]``.

Rates are of this machine at this moment; the ratio of the two acknowledged rates is what
counts, and both are measured in turns in one run.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator

import trio

from agentsdock.model.events import Draft, Encoded, encode, with_seq
from agentsdock.model.sessions import Session
from agentsdock.store.engine import transaction
from agentsdock.store.feed import Feed
from agentsdock.store.files import open_files
from agentsdock.store.protocol import DropSession, PutSession
from agentsdock.store.sqlite import SqliteStore, open_store

STAMP = "2026-01-01T00:00:00Z"
PRODUCERS = 64


def session_id(number: int) -> str:
    return f"sess_{number:016x}"


def event(chat: str, size: int, run: str | None = None) -> Encoded:
    draft = Draft("assistant_text", {"run_id": run, "text": "word " * (size // 5)})
    return encode(chat, draft, STAMP)


async def create(store: SqliteStore, number: int) -> str:
    chat = session_id(number)
    await store.append(chat, (), [PutSession(Session(chat, STAMP, STAMP))])
    return chat


async def grouped(folder: pathlib.Path, seconds: float) -> dict[str, float]:
    """Single events, each acknowledged, from many producers through the writer."""
    waits: list[float] = []

    async def produce(store: SqliteStore, chat: str) -> None:
        one = [event(chat, 500)]
        while True:
            start = time.perf_counter()
            await store.append(chat, one)
            waits.append(time.perf_counter() - start)

    async with open_store(folder) as store:
        chats = [await create(store, number) for number in range(PRODUCERS)]
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for chat in chats:
                    nursery.start_soon(produce, store, chat)
    return {
        "events_per_second": len(waits) / seconds,
        "ack_p50_ms": statistics.median(waits) * 1e3,
        "ack_p99_ms": sorted(waits)[int(len(waits) * 0.99)] * 1e3,
    }


async def one_by_one(folder: pathlib.Path, seconds: float) -> float:
    """The same producers and rows, one bare INSERT per transaction, each through a thread."""
    opened = open_files(folder)
    limiter = trio.CapacityLimiter(1)
    count = 0

    def put(number: int, seq: int, one: Encoded) -> None:
        with transaction(opened.writer):
            opened.writer.execute(
                "INSERT INTO events (chat, seq, type, run_id, body) VALUES (?, ?, ?, ?, ?)",
                (number, seq, one.type, one.run_id, with_seq(seq, one.body)),
            )

    async def produce(number: int) -> None:
        nonlocal count
        one = event(session_id(number), 500)
        for seq in itertools.count(1):
            await trio.to_thread.run_sync(put, number, seq, one, limiter=limiter)
            count += 1

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for number in range(PRODUCERS):
                nursery.start_soon(produce, number)
    opened.close()
    return count / seconds


async def batches(folder: pathlib.Path, rows: int) -> float:
    """Rows a second of 1 KB, one turn that hands over 60 at a time."""
    async with open_store(folder) as store:
        chat = await create(store, 0)
        batch = [event(chat, 1000, "run_0123456789abcdef") for _ in range(60)]
        start = time.perf_counter()
        for _ in range(rows // len(batch)):
            await store.append(chat, batch)
        return rows / (time.perf_counter() - start)


async def fill(store: SqliteStore, chat: str, rows: int) -> None:
    batch = [event(chat, 1000) for _ in range(1000)]
    for _ in range(rows // 1000):
        await store.append(chat, batch)


async def pages(folder: pathlib.Path, rows: int) -> dict[str, float]:
    """The tail page of a long chat, and what deleting that chat costs another one."""
    async with open_store(folder) as store:
        chat, other = await create(store, 0), await create(store, 1)
        await fill(store, chat, rows)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            page, total = await store.read_page(chat, without=frozenset({"raw_event"}))
            times.append(time.perf_counter() - start)
            assert (len(page), total) == (100, rows)
        start = time.perf_counter()
        await store.append(chat, (), [DropSession(chat)])
        dropped = time.perf_counter() - start
        waits = []
        for _ in range(100):
            await trio.sleep(0.02)
            start = time.perf_counter()
            await store.append(other, [event(other, 500)])
            waits.append(time.perf_counter() - start)
    return {
        "tail_page_p50_ms": statistics.median(times) * 1e3,
        "tail_page_worst_ms": max(times) * 1e3,
        "drop_ms": dropped * 1e3,
        "worst_append_while_purging_ms": max(waits) * 1e3,
    }


async def feed(folder: pathlib.Path, rows: int) -> float:
    """Events a second through one live watcher, from append to watcher."""
    async with open_store(folder) as store:
        hub = Feed(store)
        store.on_commit = hub.publish
        chat = await create(store, 0)
        with hub.watch(chat, 0) as watcher:
            start = time.perf_counter()
            async with trio.open_nursery() as nursery:
                batch = [event(chat, 1000) for _ in range(60)]

                async def produce() -> None:
                    for _ in range(rows // len(batch)):
                        await store.append(chat, batch)

                nursery.start_soon(produce)
                while watcher.cursor < rows // len(batch) * len(batch):
                    await watcher.next()
            return rows / (time.perf_counter() - start)


@contextlib.contextmanager
def fresh(parent: str | None) -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield pathlib.Path(folder) / "store"


def measure(parent: str | None, seconds: float) -> dict[str, object]:
    ours, theirs, acks = [], [], []
    for _ in range(3):
        with fresh(parent) as folder:
            acks.append(trio.run(grouped, folder, seconds))
            ours.append(acks[-1]["events_per_second"])
        with fresh(parent) as folder:
            theirs.append(trio.run(one_by_one, folder, seconds))
    results: dict[str, object] = {
        "acknowledged_single_events": {
            "grouped_per_second": ours,
            "one_by_one_per_second": theirs,
            "ratio": statistics.median(ours) / statistics.median(theirs),
            "ack_p50_ms": statistics.median(ack["ack_p50_ms"] for ack in acks),
            "ack_p99_ms": statistics.median(ack["ack_p99_ms"] for ack in acks),
        }
    }
    with fresh(parent) as folder:
        results["batched_rows_per_second"] = trio.run(batches, folder, 60_000)
    with fresh(parent) as folder:
        results["feed_events_per_second"] = trio.run(feed, folder, 60_000)
    for rows in (1_000, 50_000, 200_000):
        with fresh(parent) as folder:
            results[f"chat_of_{rows}"] = trio.run(pages, folder, rows)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the store.")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here too")
    parser.add_argument("--folder", help="where to put the databases (a real disk)")
    parser.add_argument("--seconds", type=float, default=2.0, help="per acknowledged rate")
    options = parser.parse_args()
    text = json.dumps(measure(options.folder, options.seconds), indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
