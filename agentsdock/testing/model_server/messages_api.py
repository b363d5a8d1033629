"""One reply as events of the Anthropic Messages API."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentsdock.testing.model_server.scripts import Said, Step
from agentsdock.testing.model_server.tools import claude_call

Json = dict[str, Any]
Emit = Callable[[str, Json], None]

_SIGNATURE = "c2lnbmVk"
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def conversation(body: Mapping[str, Any]) -> list[Said]:
    return [_said(message) for message in body.get("messages", []) if isinstance(message, dict)]


def _said(message: Mapping[str, Any]) -> Said:
    content = message.get("content")
    if message.get("role") == "assistant":
        return Said("model")
    blocks = content if isinstance(content, list) else []
    answers = any(block.get("type") == "tool_result" for block in blocks)
    text = (
        content if isinstance(content, str) else "\n".join(one.get("text") or "" for one in blocks)
    )
    return Said("tool" if answers else "user", text)


def error_body(status: int, kind: str | None, message: str) -> Json:
    return {
        "type": "error",
        "error": {"type": kind or _KINDS.get(status, "api_error"), "message": message},
    }


class MessagesReply:
    """Writes a reply; ``name`` makes an id that is its own out of a prefix."""

    def __init__(self, emit: Emit, body: Mapping[str, Any], name: Callable[[str], str]) -> None:
        self._emit = emit
        self._name = name
        self._id = name("msg")
        self._model = str(body.get("model", "stub"))
        self._blocks: list[Json] = []
        self._reason: str | None = None
        self.usage = {"input": 100, "output": 20, "cached": 0}

    def start(self) -> None:
        self._send("message_start", message=self._message(output=1))
        self._send("ping")

    def say(self, pieces: Iterable[str], *, whole: bool = True) -> None:
        """``whole`` False leaves the block open, as a stream does that breaks off."""
        told: list[str] = []

        def deltas() -> Iterable[Json]:
            for piece in pieces:
                told.append(piece)
                yield {"type": "text_delta", "text": piece}

        self._block({"type": "text", "text": ""}, deltas(), closed=whole)
        self._blocks[-1] = {"type": "text", "text": "".join(told)}

    def think(self, text: str) -> None:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": text},
            {"type": "signature_delta", "signature": _SIGNATURE},
        ]
        self._block(block, deltas)
        self._blocks[-1] = {**block, "thinking": text, "signature": _SIGNATURE}

    def call(self, step: Step, offered: Sequence[Mapping[str, Any]]) -> None:
        name, arguments = claude_call(step)
        self._reason = self._reason or "tool_use"
        block = {"type": "tool_use", "id": self._name("toolu"), "name": name, "input": {}}
        text = json.dumps(arguments)
        half = len(text) // 2
        deltas = [
            {"type": "input_json_delta", "partial_json": part}
            for part in (text[:half], text[half:])
        ]
        self._block(block, deltas)
        self._blocks[-1] = {**block, "input": arguments}

    def item(self, block: Json) -> None:
        self._block(block, ())

    def stop(self, reason: str) -> None:
        self._reason = reason

    def fail(self, kind: str, message: str) -> None:
        self._send("error", error={"type": kind, "message": message})

    def finish(self) -> None:
        reason = {"stop_reason": self._reason or "end_turn", "stop_sequence": None}
        self._send("message_delta", delta=reason, usage=self._usage(self.usage["output"]))
        self._send("message_stop")

    def whole(self) -> Json:
        message = self._message(self.usage["output"])
        return {**message, "content": self._blocks, "stop_reason": self._reason or "end_turn"}

    def _block(self, block: Json, deltas: Iterable[Json], *, closed: bool = True) -> None:
        index = len(self._blocks)
        self._blocks.append(block)
        self._send("content_block_start", index=index, content_block=block)
        for delta in deltas:
            self._send("content_block_delta", index=index, delta=delta)
        if closed:
            self._send("content_block_stop", index=index)

    def _message(self, output: int) -> Json:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(output),
        }

    def _usage(self, output: int) -> Json:
        return {
            "input_tokens": self.usage["input"],
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.usage["cached"],
            "output_tokens": output,
        }

    def _send(self, kind: str, **fields: Any) -> None:
        self._emit(kind, {"type": kind, **fields})
