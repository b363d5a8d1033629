"""One hierarchy of refusals: what the caller did not get, why, and what to do about it.

A :class:`DockError` is an answer to a caller, never a bug.  Its ``status`` is the HTTP
status it becomes and ``detail()`` the value of the envelope's ``detail`` key.
"""

from typing import Any

from agentsdock.model.codes import Code


class DockError(Exception):
    """A refused request.  A ``code`` makes the detail an object instead of a string."""

    status = 500

    def __init__(
        self, message: str, *, code: str | None = None, action: str | None = None, **extra: Any
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.action = action
        self.extra = extra

    def detail(self) -> str | dict[str, Any]:
        if self.code is None:
            return self.message
        return {"code": self.code, "message": self.message, "action": self.action, **self.extra}


class BadRequest(DockError):
    status = 400


class Unauthorized(DockError):
    status = 401


class Forbidden(DockError):
    status = 403


class NotFound(DockError):
    status = 404


class Conflict(DockError):
    status = 409


class TooLarge(DockError):
    status = 413


class PromptTooLarge(TooLarge):
    """A prompt that its way to the CLI cannot carry.  Sizes in bytes."""

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message, code=Code.PROMPT_TOO_LARGE.value, size=size, limit=limit)


class WrongMediaType(DockError):
    status = 415


class Unprocessable(DockError):
    """A body or parameter that cannot be read as what it should be."""

    status = 422

    def __init__(self, message: str, *, loc: tuple[str | int, ...] = ("body",)) -> None:
        super().__init__(message)
        self.loc = loc

    def detail(self) -> Any:
        return [{"type": "value_error", "loc": list(self.loc), "msg": self.message}]


class Unavailable(DockError):
    """The runtime is not usable, the store has no space, or the server is going down."""

    status = 503
