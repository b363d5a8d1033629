"""The HTTP side: one thread for each request, scripted replies as server-sent events.

``GET /stub/requests`` lists what was asked so far.  Nothing is ever fetched, no header that
carries a key is kept, and it listens on 127.0.0.1 only.
"""

import contextlib
import gzip
import itertools
import json
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from attrs import frozen

from agentsdock.testing.model_server import messages_api, responses_api
from agentsdock.testing.model_server.messages_api import Emit, Json
from agentsdock.testing.model_server.scripts import (
    CALLS,
    ENDERS,
    SCRIPTS,
    Said,
    Scene,
    Script,
    Step,
    choose,
)

MOST_BODY_BYTES = 64 * 1024 * 1024
MODELS = ("stub-text", "stub-multi")


class Reply(Protocol):
    usage: dict[str, int]

    def start(self) -> None: ...
    def say(self, pieces: Iterator[str], *, whole: bool = True) -> None: ...
    def think(self, text: str) -> None: ...
    def call(self, step: Step, offered: Sequence[Mapping[str, Any]]) -> None: ...
    def item(self, item: Json) -> None: ...
    def stop(self, reason: str) -> None: ...
    def fail(self, kind: str, message: str) -> None: ...
    def finish(self) -> None: ...
    def whole(self) -> Json: ...


@frozen
class Api:
    """One of the two protocols."""

    name: str
    conversation: Callable[[Mapping[str, Any]], list[Said]]
    error_body: Callable[[int, str | None, str], Json]
    reply: Callable[[Emit, Mapping[str, Any], Callable[[str], str]], Reply]


MESSAGES = Api(
    "messages",
    messages_api.conversation,
    messages_api.error_body,
    messages_api.MessagesReply,
)
RESPONSES = Api(
    "responses",
    responses_api.conversation,
    responses_api.error_body,
    responses_api.ResponsesReply,
)
APIS = {"/v1/messages": MESSAGES, "/v1/responses": RESPONSES}


class _Gone(Exception):
    """The client has left."""


class _Ended(Exception):
    """The script ends the exchange before its last event."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class ModelServer(ThreadingHTTPServer):
    """A scripted model on a loopback port.  ``scripts`` are added to the ones that there are."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0, scripts: Mapping[str, Script] | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.scripts = {**SCRIPTS, **(scripts or {})}
        self._lock = threading.Lock()
        self._requests: list[Json] = []
        self._played: Counter[str] = Counter()
        self._ids = itertools.count(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def requests(self) -> list[Json]:
        """What was asked: ``api``, ``model``, ``script``, ``index`` of the reply, ``status`` and
        ``end`` (complete, error, drop, cut, stream_error, stall, left, open)."""
        with self._lock:
            return [dict(entry) for entry in self._requests]

    def note(self, entry: Json) -> Json:
        with self._lock:
            self._requests.append(entry)
        return entry

    def name(self, prefix: str) -> str:
        with self._lock:
            return f"{prefix}_stub{next(self._ids):06d}"

    def still_due(self, step: Step, scene: Scene) -> bool:
        """Whether what happens ``times`` times has to happen once more; counts this one."""
        with self._lock:
            self._played[scene.mark] += 1
            return "times" not in step or self._played[scene.mark] <= step["times"]

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def running_model_server(
    port: int = 0, scripts: Mapping[str, Script] | None = None
) -> Iterator[ModelServer]:
    """A server in a thread of this process, until the block is left."""
    with ModelServer(port, scripts) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_GET(self) -> None:
        path = self._path()
        if path == "/stub/requests":
            self._answer(200, self.server.requests)
        elif path == "/v1/models":
            models = [{"id": name, "type": "model", "object": "model"} for name in MODELS]
            self._answer(200, {"object": "list", "data": models, "has_more": False, "models": []})
        else:
            # 426 to a WebSocket handshake: Codex then uses HTTP at once, and retries anything else.
            status = 426 if path == "/v1/responses" else 404
            self._answer(status, messages_api.error_body(status, None, "not found"))

    def do_POST(self) -> None:
        path = self._path()
        size = int(self.headers.get("content-length") or 0)
        if size > MOST_BODY_BYTES:
            self.close_connection = True
            self._answer(413, messages_api.error_body(413, None, "too large"))
            return
        data = self.rfile.read(size)
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        if path == "/v1/messages/count_tokens":
            self._answer(200, {"input_tokens": max(1, len(data) // 4)})
            return
        api = APIS.get(path)
        body = _json(data)
        if api is None or body is None:
            self._answer(404, messages_api.error_body(404, None, "not found"))
            return
        self._play(api, body)

    def _path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _play(self, api: Api, body: Mapping[str, Any]) -> None:
        model, tools = str(body.get("model", "")), body.get("tools") or []
        conversation = api.conversation(body)
        scene = choose(self.server.scripts, conversation, model, tools=bool(tools))
        entry = {"api": api.name, "model": model, "script": scene.name, "index": scene.index}
        entry = self.server.note({**entry, "status": 200, "end": "open"})
        steps = [step for step in scene.steps if self._happens(step, scene)]
        if steps and "fail" in steps[0]:
            step = steps[0]
            entry.update(status=step["fail"], end="error")
            error = api.error_body(step["fail"], step.get("type"), step.get("message", "scripted"))
            wait = step.get("retry_after")
            self._answer(step["fail"], error, {} if wait is None else {"retry-after": str(wait)})
            return
        entry["end"] = self._stream(api, body, steps, tools)

    def _happens(self, step: Step, scene: Scene) -> bool:
        return not (ENDERS | {"fail"}) & step.keys() or self.server.still_due(step, scene)

    def _stream(
        self, api: Api, body: Mapping[str, Any], steps: Sequence[Step], tools: Sequence[Json]
    ) -> str:
        """Play the steps; how the exchange ended."""
        streaming = bool(body.get("stream"))
        reply = api.reply(self._event if streaming else _nowhere, body, self.server.name)
        try:
            if streaming:
                self._open_stream()
            if not (steps and "stall" in steps[0]):
                reply.start()
            for at, step in enumerate(steps):
                following: Step = steps[at + 1] if at + 1 < len(steps) else {}
                self._step(reply, step, following, tools)
            reply.finish()
            if streaming:
                self._chunk(b"")
            else:
                self._answer(200, reply.whole())
        except _Ended as ended:
            self.close_connection = True
            if ended.how == "drop":
                self._reset()
            elif streaming and ended.how != "stall":
                self._chunk(b"")
            elif not streaming:
                self._answer(500, api.error_body(500, None, "scripted"))
            return ended.how
        except (_Gone, OSError):
            self.close_connection = True
            return "left"
        return "complete"

    def _step(self, reply: Reply, step: Step, following: Step, tools: Sequence[Json]) -> None:
        match step:
            case {"say": text}:
                breaks = bool((ENDERS | {"stall"}) & following.keys())
                pieces = self._pieces(text, step.get("size", 12), step.get("delay", 0))
                reply.say(pieces, whole=not breaks)
            case {"think": text}:
                reply.think(text)
            case {"item": item}:
                reply.item(dict(item))
            case {"stall": seconds}:
                self._wait(seconds)
                raise _Ended("stall")
            case {"stream_error": kind}:
                reply.fail(kind, step.get("message", "scripted"))
                raise _Ended("stream_error")
            case {"drop": _}:
                raise _Ended("drop")
            case {"cut": _}:
                raise _Ended("cut")
            case {"raw": text}:
                self._chunk(text.encode())
            case {"stop": reason}:
                reply.stop(reason)
            case {"usage": usage}:
                reply.usage.update(usage)
            case _ if CALLS & step.keys():
                reply.call(step, tools)
            case _:
                raise ValueError(f"no such step: {step!r}")

    def _pieces(self, text: str, size: int, delay: float) -> Iterator[str]:
        for start in range(0, len(text), size):
            if delay:
                self._wait(delay)
            yield text[start : start + size]

    def _wait(self, seconds: float) -> None:
        """Silence, until the client leaves."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            readable, _, _ = select.select([self.connection], [], [], left)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise _Gone
            if readable:  # bytes that nobody will read before the reply is over
                time.sleep(min(left, 0.05))

    def _open_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _event(self, kind: str, data: Json) -> None:
        text = f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
        self._chunk(text.encode("utf-8", "surrogatepass"))

    def _chunk(self, data: bytes) -> None:
        """A piece of the body; an empty one ends it."""
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError as error:
            raise _Gone from error

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _answer(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _nowhere(kind: str, data: Json) -> None:
    """Where the events of a reply go that was asked for in one piece."""


def _json(data: bytes) -> Json | None:
    try:
        body = json.loads(data or b"{}")
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
