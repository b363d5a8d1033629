"""Cost of reading a chat: ``python benchmarks/timeline.py [--json FILE] [--folder DIR]``.

Every reading is taken in turns with the raw tail page of the same chat, and what counts is its
ratio to that.  Appends are measured with the indexes that readings need and without them.
"""

import argparse
import contextlib
import json
import pathlib
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import trio

from agentsdock import config
from agentsdock.chats import pages
from agentsdock.chats.chat import Chat
from agentsdock.chats.reading import Reading
from agentsdock.chats.registry import Registry
from agentsdock.config import Settings
from agentsdock.model.events import Draft, Encoded, encode
from agentsdock.model.requests import ReadPage
from agentsdock.model.sessions import Session
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import PutSession
from agentsdock.store.sqlite import SqliteStore, open_store

STAMP = "2026-01-01T00:00:00Z"
CHAT = "sess_0123456789abcdef"
TURN_EVENTS = 50
REFERENCE_TAIL_MS = 546
"""The reference's tail page of 50,000 events, on the machine that set our targets."""
INDEXES = ("events_outline", "events_trace", "events_subagents")

Read = Callable[[], Awaitable[Any]]


def turn(number: int) -> list[Encoded]:
    """Fifty events of a kilobyte: a prompt, words and tools in turn, a result."""
    run = f"run_{number:016x}"
    words = Draft("assistant_text", {"run_id": run, "text": "word " * 170})
    tool = {"id": "call_1", "name": "grep", "input": {"pattern": "x" * 700}}
    inside = [words, Draft("tool_started", {"run_id": run, "tool": tool})]
    drafts = [
        Draft("turn_started", {"run_id": run, "prompt": "please " * 100}),
        *(inside * (TURN_EVENTS // 2 - 1)),
        Draft("turn_finished", {"run_id": run, "result_text": "done " * 170, "exit_code": 0}),
    ]
    return [encode(CHAT, draft, STAMP) for draft in drafts]


class House:
    """One long chat, and those who read it."""

    def __init__(self, store: SqliteStore, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.registry = Registry(store, Feed(store))
        self.chat = Chat(Session(CHAT, STAMP, STAMP))
        self.registry.add(self.chat)
        self.reading = self.fresh()

    def fresh(self) -> Reading:
        """As after a start of the server: nothing is known of the chat yet."""
        return Reading(self.settings, self.store, self.registry)

    async def fill(self, rows: int) -> None:
        await self.store.append(CHAT, (), [PutSession(self.chat.session)])
        for number in range(rows // TURN_EVENTS):
            await self.store.append(CHAT, turn(number))

    async def page(self, **query: Any) -> bytes:
        return await pages.page(self.store, self.settings, self.chat, ReadPage(**query))

    async def semantic(self, reading: Reading, limit: int, before: int | None = None) -> bytes:
        asked = ReadPage(limit=limit, before=before, semantic=True)
        return await reading.semantic_page(CHAT, asked)

    def readings(self, rows: int) -> dict[str, Read]:
        middle = f"run_{rows // TURN_EVENTS // 2:016x}"
        return {
            "visible_tail_100": lambda: self.page(visible=True),
            "compact_tail_100": lambda: self.page(compact=True),
            "raw_middle_100": lambda: self.page(before=rows // 2),
            "raw_forward_100": lambda: self.page(after=rows // 2),
            "semantic_tail_48": lambda: self.semantic(self.reading, 48),
            "semantic_tail_120": lambda: self.semantic(self.reading, 120),
            "semantic_older_120": lambda: self.semantic(self.reading, 120, before=rows // 2),
            "index": lambda: self.reading.index(CHAT),
            "trace_160": lambda: self.reading.trace(CHAT, middle, anchor=None, after=0, limit=160),
            "subagents": lambda: self.reading.subagents(CHAT, 64),
        }


async def timed(read: Read) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    await read()
    return (time.perf_counter() - start) * 1e3


async def beside(baseline: Read, read: Read, times: int) -> dict[str, float]:
    await baseline()
    pairs = [(await timed(baseline), await timed(read)) for _ in range(times)]
    base = statistics.median(pair[0] for pair in pairs)
    took = [pair[1] for pair in pairs]
    return {
        "p50_ms": statistics.median(took),
        "worst_ms": max(took),
        "of_raw_tail": statistics.median(took) / base,
    }


async def chat_of(folder: pathlib.Path, rows: int, times: int) -> dict[str, Any]:
    settings = config.load({"AGENTSDOCK_STATE_DIR": str(folder)}, port=0)
    async with open_store(folder) as store:
        house = House(store, settings)
        await house.fill(rows)
        before = rss_mb()
        tails = [await timed(house.page) for _ in range(times)]
        found: dict[str, Any] = {
            "raw_tail_100_p50_ms": statistics.median(tails),
            "raw_tail_100_of_reference": statistics.median(tails) / REFERENCE_TAIL_MS,
        }

        async def first_page() -> bytes:
            return await house.semantic(house.fresh(), 48)

        async def first_index() -> bytes:
            return await house.fresh().index(CHAT)

        found["semantic_first_48_after_a_start"] = await beside(house.page, first_page, 5)
        found["index_first_after_a_start"] = await beside(house.page, first_index, 5)
        for name, read in house.readings(rows).items():
            found[name] = await beside(house.page, read, times)
        found["peak_rss_grew_mb"] = rss_mb() - before
    return found


async def append_rate(folder: pathlib.Path, rows: int, *, indexed: bool) -> float:
    """Rows a second, turn by turn."""
    settings = config.load({"AGENTSDOCK_STATE_DIR": str(folder)}, port=0)
    async with open_store(folder) as store:
        if not indexed:
            await drop_indexes(store)
        start = time.perf_counter()
        await House(store, settings).fill(rows)
        return rows / (time.perf_counter() - start)


async def drop_indexes(store: SqliteStore) -> None:
    def drop(db: Any) -> None:
        for name in INDEXES:
            db.execute(f"DROP INDEX {name}")

    await store._in_writer(drop, abandon=False)


def rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def fresh(parent: str | None) -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield pathlib.Path(folder) / "store"


def measure(parent: str | None, times: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for rows in (50_000, 200_000):
        with fresh(parent) as folder:
            results[f"chat_of_{rows}"] = trio.run(chat_of, folder, rows, times)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        for indexed in (True, False):
            with fresh(parent) as folder:

                async def rate(folder: pathlib.Path = folder, kept: bool = indexed) -> float:
                    return await append_rate(folder, 30_000, indexed=kept)

                rates[indexed].append(trio.run(rate))
    results["appended_rows_per_second"] = {
        "with_indexes": rates[True],
        "without": rates[False],
        "ratio": statistics.median(rates[True]) / statistics.median(rates[False]),
    }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what reading a chat costs.")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here too")
    parser.add_argument("--folder", help="where to put the databases (a real disk)")
    parser.add_argument("--times", type=int, default=20, help="readings of each kind")
    options = parser.parse_args()
    text = json.dumps(measure(options.folder, options.times), indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
