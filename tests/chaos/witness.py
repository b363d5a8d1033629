"""A client that believes nothing: it checks each event of a chat as it comes."""

import json
from collections import Counter
from collections.abc import Callable

import httpx
import trio
from trio_websocket import ConnectionClosed, HandshakeError, wrap_client_stream

from agentsdock.model.events import TERMINAL_TYPES

HEAR_SECONDS = 60


class Timeline:
    """Every event of a chat, from the first.  Fails on one that is lost, doubled or misplaced."""

    def __init__(self):
        self.events = []
        self.open = set()
        """Runs without their terminal event."""
        self.endings = {}
        """Terminal event by run."""
        self.runs = {}
        """Run by the queue row that it was."""
        self.waiting = {}
        """Whether it is paused, by queue row."""

    def add(self, event):
        assert event["seq"] == len(self.events) + 1, "an event was lost, doubled or misplaced"
        self.events.append(event)
        kind, run, row = event["type"], event.get("run_id"), event.get("queued_id")
        assert run not in self.endings, f"{kind} follows the end of {run}"
        match kind:
            case "turn_started":
                assert run not in self.open
                self.open.add(run)
                if row is not None:
                    assert self.waiting.pop(row) is False, "a row ran that did not wait"
                    self.runs[row] = run
            case "turn_queued":
                self.waiting[row] = False
            case "turn_unqueued":
                del self.waiting[row]
            case "turn_queue_paused":
                self.waiting.update(dict.fromkeys(event["queued_ids"], True))
            case _ if kind in TERMINAL_TYPES:
                self.open.remove(run)
                self.endings[run] = event
            case _:
                assert run is None or run in self.open, f"{kind} of {run}, which never started"

    @property
    def quiet(self):
        """Nothing runs and nothing will start by itself."""
        return bool(self.events) and not self.open and all(self.waiting.values())

    def has(self, kind):
        return any(event["type"] == kind for event in self.events)

    def texts(self, run):
        said = [event for event in self.events if event["type"] == "assistant_text"]
        return [event["text"] for event in said if event["run_id"] == run]


class Witness:
    """Follows one chat, over as many connections and server lives as it takes."""

    def __init__(self, chat, *, per_connection=10**9):
        self.chat = chat
        self.timeline = Timeline()
        self._per_connection = per_connection
        self._heard = trio.Event()

    async def follow(self, server):
        """Until the server goes."""
        try:
            while True:
                await self._connection(server)
        except* (OSError, HandshakeError, ConnectionClosed, trio.BrokenResourceError):
            pass

    async def _connection(self, server):
        url = httpx.URL(server.url)
        path = f"/api/sessions/{self.chat}/events?after={len(self.timeline.events)}"
        headers = [(b"x-agentsdock-token", (server.token or "").encode())]
        async with (
            await trio.open_tcp_stream(url.host, url.port) as stream,
            trio.open_nursery() as nursery,
        ):
            socket = await wrap_client_stream(
                nursery, stream, f"{url.host}:{url.port}", path, extra_headers=headers
            )
            async with socket:
                for _ in range(self._per_connection):
                    self.timeline.add(json.loads(await socket.get_message()))
                    self._heard.set()
                    self._heard = trio.Event()

    async def hear(self, condition: Callable[[Timeline], object]):
        """Until the timeline meets the condition; what that is."""
        with trio.move_on_after(HEAR_SECONDS):
            while not (found := condition(self.timeline)):
                await self._heard.wait()
            return found
        raise AssertionError(f"not heard in time; the last was {self.timeline.events[-1:]}")


async def read_all(http: httpx.AsyncClient, chat: str) -> list[dict]:
    """Every stored event of a chat, page by page."""
    events: list[dict] = []
    while True:
        page = {"after": len(events), "limit": 1000, "tail": "false"}
        answer = (await http.get(f"/api/sessions/{chat}", params=page)).raise_for_status().json()
        events += answer["events"]
        if len(events) == answer["latest_seq"]:
            return events
        assert answer["events"], "a page is missing"


def said_in_order(texts: list[str]) -> bool:
    """Whether numbered texts (``#000000`` ...) are all there, up to where they end."""
    numbered = [text for text in texts if text.startswith("#")]
    return numbered == [f"#{number:06d}" for number in range(len(numbered))] and not any(
        count > 1 for count in Counter(texts).values()
    )
