"""One reply as events of the OpenAI Responses API."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentsdock.testing.model_server.messages_api import Emit, Json
from agentsdock.testing.model_server.scripts import Said, Step
from agentsdock.testing.model_server.tools import codex_call

_LIMIT_REASON = "max_tokens"


def conversation(body: Mapping[str, Any]) -> list[Said]:
    told = body.get("input", [])
    if isinstance(told, str):
        return [Said("user", told)]
    return [_said(item) for item in told if isinstance(item, dict)]


def _said(item: Mapping[str, Any]) -> Said:
    kind = item.get("type", "message")
    if kind.endswith("_output"):
        return Said("tool")
    if kind != "message" or item.get("role") == "assistant":
        return Said("model")
    content = item.get("content")
    if isinstance(content, str):
        return Said("user", content)
    return Said("user", "\n".join(part.get("text") or "" for part in content or []))


def error_body(status: int, kind: str | None, message: str) -> Json:
    kind = kind or "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


class ResponsesReply:
    """Writes a reply; ``name`` makes an id that is its own out of a prefix."""

    def __init__(self, emit: Emit, body: Mapping[str, Any], name: Callable[[str], str]) -> None:
        self._emit = emit
        self._name = name
        self._id = name("resp")
        self._model = str(body.get("model", "stub"))
        self._items: list[Json] = []
        self._numbers = itertools.count()
        self._reason: str | None = None
        self.usage = {"input": 100, "output": 20, "cached": 0}

    def start(self) -> None:
        self._send("response.created", response=self._response("in_progress"))
        self._send("response.in_progress", response=self._response("in_progress"))

    def say(self, pieces: Iterable[str], *, whole: bool = True) -> None:
        """``whole`` False leaves the item open, as a stream does that breaks off."""
        item: Json = {
            "id": self._name("msg"),
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        at = {**self._added(item), "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": []}
        self._send("response.content_part.added", **at, part=empty)
        told = []
        for piece in pieces:
            told.append(piece)
            self._send("response.output_text.delta", **at, delta=piece)
        if whole:
            part = {**empty, "text": "".join(told)}
            self._send("response.output_text.done", **at, text=part["text"])
            self._send("response.content_part.done", **at, part=part)
            self._done({**item, "status": "completed", "content": [part]})

    def think(self, text: str) -> None:
        item: Json = {"id": self._name("rs"), "type": "reasoning", "summary": []}
        item["encrypted_content"] = "c2VhbGVk"
        at = {**self._added(item), "summary_index": 0}
        part = {"type": "summary_text", "text": text}
        self._send("response.reasoning_summary_part.added", **at, part={**part, "text": ""})
        self._send("response.reasoning_summary_text.delta", **at, delta=text)
        self._send("response.reasoning_summary_text.done", **at, text=text)
        self._send("response.reasoning_summary_part.done", **at, part=part)
        self._done({**item, "summary": [part]})

    def call(self, step: Step, offered: Sequence[Mapping[str, Any]]) -> None:
        name, arguments = codex_call(step, offered)
        free = isinstance(arguments, str)
        kind, key, events = (
            ("custom_tool_call", "input", "response.custom_tool_call_input")
            if free
            else ("function_call", "arguments", "response.function_call_arguments")
        )
        text = arguments if free else json.dumps(arguments)
        item: Json = {
            "id": self._name("ctc" if free else "fc"),
            "type": kind,
            "status": "in_progress",
            "call_id": self._name("call"),
            "name": name,
            key: "",
        }
        at = self._added(item)
        self._send(f"{events}.delta", **at, delta=text)
        self._send(f"{events}.done", **at, **{key: text})
        self._done({**item, "status": "completed", key: text})

    def item(self, item: Json) -> None:
        item = {"id": self._name("item"), **item}
        self._added(item)
        self._done(item)

    def stop(self, reason: str) -> None:
        self._reason = reason

    def fail(self, kind: str, message: str) -> None:
        error = {"code": kind, "message": message}
        self._send("response.failed", response=self._response("failed", error=error))

    def finish(self) -> None:
        if self._reason == _LIMIT_REASON:
            why = {"reason": "max_output_tokens"}
            cut = self._response("incomplete", incomplete_details=why, usage=self._usage())
            self._send("response.incomplete", response=cut)
        else:
            self._send("response.completed", response=self.whole())

    def whole(self) -> Json:
        return self._response("completed", usage=self._usage())

    def _response(self, status: str, **fields: Any) -> Json:
        return {
            "id": self._id,
            "object": "response",
            "created_at": 0,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": list(self._items),
            "parallel_tool_calls": True,
            "usage": None,
            **fields,
        }

    def _usage(self) -> Json:
        given, made = self.usage["input"], self.usage["output"]
        return {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": self.usage["cached"]},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + made,
        }

    def _added(self, item: Json) -> Json:
        at = {"output_index": len(self._items), "item_id": item["id"]}
        self._send("response.output_item.added", output_index=len(self._items), item=item)
        return at

    def _done(self, item: Json) -> None:
        self._send("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)

    def _send(self, kind: str, **fields: Any) -> None:
        self._emit(kind, {"type": kind, "sequence_number": next(self._numbers), **fields})
