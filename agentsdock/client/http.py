"""A typed client of the server's HTTP and WebSocket interface, on Trio.

It knows the wire and nothing of the server.  Every failure is one :class:`ApiError`.
"""

import contextlib
import pathlib
import secrets
import urllib.parse
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, BinaryIO, Self

import httpx
import trio
from attrs import frozen

from agentsdock.client.errors import ApiError, refusal, unreachable
from agentsdock.client.events import EventStream, pump
from agentsdock.client.files import UPLOAD_TIMEOUT, Download, Progress, Upload

Json = dict[str, Any]

TURN_TRIES = 3
RETRY_SECONDS = 0.5


@frozen
class Accepted:
    """A turn that the server took.  It runs as ``run_id``, or waits as ``queued_id``.

    ``event`` is the durable event that says so; ``position`` counts from 1.
    """

    session_id: str
    queued: bool
    event: Json
    run_id: str | None = None
    queued_id: str | None = None
    position: int | None = None


@frozen
class StopReceipt:
    """How a stop ended.  ``outcome`` is ``stopped``, ``finished`` or ``idle``.

    ``run_id`` and the rest are None where nothing ran; ``pending`` says that it is not over.
    """

    outcome: str
    pending: bool = False
    run_id: str | None = None
    terminal_seq: int | None = None
    tree_empty: bool | None = None
    processes_ended: int | None = None
    elapsed_ms: float | None = None
    rung: str | None = None


class Client:
    """One server.  An async context manager; ``timeout`` in seconds is for each single answer.

    Proxies of the environment are not used: a token must not pass through them unasked.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=timeout, trust_env=False
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, value, trace)

    async def health(self) -> Json:
        return await self._call("GET", "/api/health")

    async def catalog(self, *, refresh: bool = False) -> Json:
        return await self._call(
            "GET", "/api/runtime/catalog", params={"refresh": "true"} if refresh else {}
        )

    async def sessions(self) -> list[Json]:
        """Summaries of all chats, in the server's order."""
        reply = await self._call("GET", "/api/sessions", params={"summary": "true"})
        found: list[Json] = reply["sessions"]
        return found

    async def session(self, session_id: str, **page: str | int | bool) -> Json:
        """A chat with a page of its events (``after``, ``before``, ``limit``, ``tail``...)."""
        params = {key: _param(value) for key, value in page.items()}
        return await self._call("GET", _path(session_id), params=params)

    async def create_session(self, **fields: Any) -> Json:
        reply = await self._call("POST", "/api/sessions", json=fields)
        session: Json = reply["session"]
        return session

    async def update_session(self, session_id: str, **fields: Any) -> Json:
        return await self._call("PATCH", _path(session_id), json=fields)

    async def delete_session(self, session_id: str) -> Json:
        return await self._call("DELETE", _path(session_id))

    async def post_turn(
        self, session_id: str, prompt: str, *, key: str | None = None, **fields: Any
    ) -> Accepted:
        """Send a message.  A broken connection is tried again under the same idempotency key,
        so the turn is taken once however often the request arrived.
        """
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        body = {"prompt": prompt, **fields}
        for attempt in range(1, TURN_TRIES + 1):
            try:
                reply = await self._call(
                    "POST", f"{_path(session_id)}/turns", json=body, headers=headers
                )
                break
            except ApiError as error:
                if error.status is not None or attempt == TURN_TRIES:
                    raise
                await trio.sleep(RETRY_SECONDS)
        return Accepted(
            session_id=session_id,
            queued=reply["queued"],
            event=reply["event"],
            run_id=reply.get("run_id"),
            queued_id=reply.get("queued_id"),
            position=reply.get("position"),
        )

    async def stop(self, session_id: str) -> StopReceipt:
        """Stop what runs; returns when its terminal event is durable."""
        reply = await self._call("POST", f"{_path(session_id)}/stop")
        names = ("run_id", "terminal_seq", "tree_empty", "processes_ended", "elapsed_ms", "rung")
        return StopReceipt(
            reply.get("outcome", "stopped"),
            bool(reply.get("pending")),
            **{name: reply.get(name) for name in names},
        )

    async def queue(self, session_id: str) -> list[Json]:
        """The waiting messages of a chat, in the order in which they will run."""
        rows: list[Json] = (await self.session(session_id, limit=1))["queued_turns"]
        return rows

    async def edit_queued(self, session_id: str, queued_id: str, **fields: Any) -> Json:
        """Change a waiting message (``prompt``, ``file_ids``, ...); the row as it is now."""
        reply = await self._call("PATCH", _row(session_id, queued_id), json=fields)
        item: Json = reply["item"]
        return item

    async def delete_queued(self, session_id: str, queued_id: str) -> int:
        """Take a waiting message out; how many rows are left."""
        reply = await self._call("DELETE", _row(session_id, queued_id))
        remaining: int = reply["remaining"]
        return remaining

    async def move_queued(self, session_id: str, queued_id: str, direction: str) -> list[Json]:
        """Move a waiting message ``up`` or ``down``; the place of each row by its id."""
        path = f"{_row(session_id, queued_id)}/move"
        reply = await self._call("POST", path, json={"direction": direction})
        positions: list[Json] = reply["positions"]
        return positions

    async def run_queued_now(self, session_id: str, queued_id: str) -> Json:
        """Run a waiting message next, in place of what runs.

        Raises ApiError with the code ``force_send_deferred`` where that cannot be yet.
        """
        return await self._call("POST", f"{_row(session_id, queued_id)}/run-now")

    async def extend(
        self, session_id: str, run_id: str, seconds: int, *, clock: str | None = None
    ) -> Json:
        """Give a running turn more time on one clock (``idle``, ``turn``) or both."""
        body: Json = {"seconds": seconds} if clock is None else {"seconds": seconds, "clock": clock}
        path = f"{_path(session_id)}/runs/{urllib.parse.quote(run_id, safe='')}/extend"
        return await self._call("POST", path, json=body)

    async def diff(self, session_id: str, run_id: str) -> bytes:
        """The patch of what a run changed; ApiError with status 404 where there is none."""
        path = f"{_path(session_id)}/diffs/{urllib.parse.quote(run_id, safe='')}"
        return (await self._answer("GET", path)).content

    async def search(self, query: str, *, session_id: str | None = None, limit: int = 40) -> Json:
        """Hits in one chat, or the newest of each chat; ``complete`` unless some may lack yet."""
        path = "/api/search" if session_id is None else f"{_path(session_id)}/search"
        return await self._call("GET", path, params={"q": query, "limit": str(limit)})

    async def files(self, session_id: str) -> list[Json]:
        """The files of a chat, the newest first."""
        found: list[Json] = (await self._call("GET", f"{_path(session_id)}/files"))["files"]
        return found

    async def upload(
        self, session_id: str, file: BinaryIO, name: str, *, progress: Progress = lambda _: None
    ) -> Json:
        """Send an open file from its beginning; its record."""
        form = Upload.of(file, name)
        reply = await self._call(
            "POST",
            f"{_path(session_id)}/files",
            content=form.body(progress),
            headers=form.headers,
            timeout=UPLOAD_TIMEOUT,
        )
        record: Json = reply["file"]
        return record

    async def download(
        self,
        session_id: str,
        file_id: str,
        target: pathlib.Path,
        *,
        overwrite: bool = False,
        progress: Progress = lambda _: None,
    ) -> None:
        """Fetch a file; broken connections, and calls, go on where they broke.

        Raises ApiError and OSError: FileExistsError unless it may overwrite the target.
        """
        path = f"{_path(session_id)}/files/{urllib.parse.quote(file_id, safe='')}"
        await Download(self._http, path, target, file_id, overwrite, progress).run()

    @contextlib.asynccontextmanager
    async def events(
        self,
        session_id: str,
        *,
        after: int = 0,
        visible: bool = False,
        patience_seconds: float = 60.0,
    ) -> AsyncIterator[EventStream]:
        """Every event after ``after``, once and in order, over as many connections as it takes.

        Iteration ends when the chat is deleted.  It raises ApiError where the server refuses,
        where events are missing (code ``gap``), or where no connection comes about within
        ``patience_seconds``.  ``visible`` leaves out raw events.
        """
        send, receive = trio.open_memory_channel[Json | ApiError](0)
        url = f"{self.url.replace('http', 'ws', 1)}{_path(session_id)}/events"
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump, self._http, url, after, visible, patience_seconds, send)
            try:
                yield EventStream(receive)
            except Exception as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _call(self, method: str, path: str, **options: Any) -> Json:
        reply = await self._answer(method, path, **options)
        try:
            body: Json = reply.json()
        except ValueError as error:
            raise ApiError(
                "the answer is not JSON", status=reply.status_code, action="Check the address."
            ) from error
        return body

    async def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            reply = await self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error
        if not reply.is_success:
            raise refusal(reply.status_code, reply.content)
        return reply


def _path(session_id: str) -> str:
    return f"/api/sessions/{urllib.parse.quote(session_id, safe='')}"


def _row(session_id: str, queued_id: str) -> str:
    return f"{_path(session_id)}/queue/{urllib.parse.quote(queued_id, safe='')}"


def _param(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
