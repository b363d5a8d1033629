"""The one failure of the client, and how answers and broken connections become it."""

import json
from typing import Any


class ApiError(Exception):
    """The server refused, or could not be reached (``status`` None).

    ``message`` says what happened, ``action`` what to do about it, if anything is known;
    ``code`` is the server's machine code, if it sent one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        action: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.action = action

    def __str__(self) -> str:
        if not self.action:
            return self.message
        end = "" if self.message.endswith((".", "!", "?")) else "."
        return f"{self.message}{end} {self.action}"


def refusal(status: int, body: bytes) -> ApiError:
    """An error answer, whatever shape its ``detail`` has."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = None
    if isinstance(detail, str):
        return ApiError(detail, status=status, action=_ACTIONS.get(status))
    if isinstance(detail, dict):
        return ApiError(
            str(detail.get("message") or detail.get("code") or detail),
            status=status,
            code=detail.get("code"),
            action=detail.get("action"),
        )
    if isinstance(detail, list):
        return ApiError("; ".join(map(_complaint, detail)), status=status)
    return ApiError(f"the server answered {status}", status=status, action=_ACTIONS.get(status))


_ACTIONS = {
    401: "Give the server's token: --token, AGENTSDOCK_AGENT_TOKEN or the state directory.",
}


def _complaint(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    place = ".".join(str(part) for part in item.get("loc", ()))
    return f"{place}: {item.get('msg')}" if place else str(item.get("msg"))


def unreachable(url: str, error: Exception) -> ApiError:
    reason = str(error) or type(error).__name__
    return ApiError(
        f"no answer from {url} ({reason}).", action="Is the server running (agentsdock serve)?"
    )
