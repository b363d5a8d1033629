"""What clients send, read strictly: each refusal names the field, unknown fields are ignored."""

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeVar

import msgspec
from quart import request

from agentsdock.model.errors import Unprocessable

MAX_DEPTH = 64
MAX_NESTED_BYTES = 256 * 1024
"""Of all lists and objects in a body together; texts have bounds of their own."""
MAX_INTEGER = 2**53 - 1

T = TypeVar("T")

_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF_A_PAIR = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


def is_too_deep(json: bytes) -> bool:
    """Whether valid JSON nests deeper than MAX_DEPTH."""
    unescaped = json.replace(rb"\\", b"").replace(rb"\"", b"")
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    brackets = outside_strings.translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


async def received() -> bytes:
    """The body of the current request, which the gate has read within its bounds."""
    return await request.get_data(True, False, False)


class Body:
    """A JSON object.  Its fields are decoded when they are asked for, by name and type.

    Every method raises Unprocessable for a value of another type or beyond its bound.
    """

    def __init__(self, raw: bytes) -> None:
        try:
            self._fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError as error:
            raise Unprocessable("the body must be a JSON object") from error
        except msgspec.DecodeError as error:
            raise Unprocessable(_why_unreadable(raw, error)) from error
        except RecursionError as error:
            raise _too_deep() from error
        fields = (memoryview(field) for field in self._fields.values())
        nested = b",".join(field for field in fields if field[0] in b"[{")
        if len(nested) > MAX_NESTED_BYTES:
            raise Unprocessable(f"lists and objects take more than {MAX_NESTED_BYTES} bytes")
        if is_too_deep(b"[" + nested + b"]"):
            raise _too_deep()

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def value(self, name: str, kind: type[T]) -> T | None:
        """A field of this type, or None where it is null or absent."""
        raw = self._fields.get(name)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=kind | None)
        except msgspec.DecodeError as error:
            raise refused(name, str(error)) from error

    def text(self, name: str, limit: int) -> str | None:
        """At most ``limit`` characters, none of them NUL."""
        text = self.value(name, str)
        return None if text is None else _bounded(name, text, limit)

    def texts(self, name: str, count: int, limit: int) -> tuple[str, ...]:
        items = self.items(name, list[str], count)
        return tuple(_bounded(name, item, limit) for item in items)

    def items(self, name: str, kind: type[list[T]], count: int) -> list[T]:
        """At most ``count`` items; none where the field is null or absent."""
        items = self.value(name, kind) or []
        if len(items) > count:
            raise refused(name, f"at most {count} items, not {len(items)}")
        return items


def _why_unreadable(raw: bytes, error: Exception) -> str:
    # The decoder calls a text that ends in half a pair truncated input.
    for half in islice(_HALF_A_PAIR.finditer(raw), 16):
        before = raw[max(half.start() - 256, 0) : half.start()]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            shown = half[0].decode("ascii")
            return f"{shown} is half of a surrogate pair: a text must hold whole characters"
    return f"unreadable JSON: {error}"


def _too_deep() -> Unprocessable:
    return Unprocessable(f"nested deeper than {MAX_DEPTH} levels")


def refused(name: str, message: str, place: str = "body") -> Unprocessable:
    return Unprocessable(message, loc=(place, name))


def _bounded(name: str, text: str, limit: int) -> str:
    if len(text) > limit:
        raise refused(name, f"at most {limit} characters, not {len(text)}")
    if "\0" in text:
        raise refused(name, "no NUL characters")
    return text


Reader = Callable[[Body, str], Any]


def text(limit: int) -> Reader:
    return lambda body, name: body.text(name, limit)


def flag(body: Body, name: str) -> bool | None:
    return body.value(name, bool)


def choice(choices: tuple[str, ...], *, blank_is_null: bool = False) -> Reader:
    def read(body: Body, name: str) -> str | None:
        value = body.value(name, str)
        if value is None or (blank_is_null and not value.strip()):
            return None
        if value not in choices:
            raise refused(name, f"one of {', '.join(choices)}")
        return value

    return read


class Query:
    """Parameters of a URL, under the same rules."""

    def __init__(self, args: Mapping[str, str]) -> None:
        self._args = args

    def __contains__(self, name: str) -> bool:
        return name in self._args

    def text(self, name: str) -> str:
        return self._args.get(name, "").strip()

    def integer(self, name: str, default: T) -> int | T:
        """Negative numbers are zero, and there is a ceiling."""
        text = self.text(name)
        if not text:
            return default
        if not re.fullmatch(r"-?[0-9]{1,19}", text):
            raise refused(name, "a whole number", "query")
        return min(max(int(text), 0), MAX_INTEGER)

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name).lower()
        if not text:
            return default
        if text not in (*_TRUE, *_FALSE):
            raise refused(name, "true or false", "query")
        return text in _TRUE


def limit_of(query: Query, default: int, ceiling: int) -> int:
    """A ``limit`` within its bounds; beyond them it is refused and not cut."""
    limit = query.integer("limit", default)
    if not 1 <= limit <= ceiling:
        raise refused("limit", f"a number from 1 to {ceiling}", "query")
    return limit
