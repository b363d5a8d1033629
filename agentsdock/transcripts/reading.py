"""What was said in a CLI's own transcript of a session, line by line.

Pure: complete lines in, the newest items out.  Whatever the lines are, memory stays bounded by
the number and size of the items that are kept, and each line that is not used is counted under
its reason.
"""

import datetime
import hashlib
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import define, evolve, field, frozen

REMEMBERED = 100_000
"""Entries by which a repeat is known; compaction and resume repeat what lies near."""
MAX_LINE_BYTES = 16 * 1024 * 1024
PROMPT_MARK = "[Current user prompt]\n"
"""Behind it stands what the user wrote, in front of it what this server added."""
HELPERS_MARK = "\n\n[AgentsDock helpers]\n"
"""Behind it stands what this server added at the end."""


@frozen
class Said:
    """One message: ``role`` is user or assistant, ``ts`` an ISO stamp or None.

    Until its transcript gives it out, ``ts`` is what stood there.
    """

    role: str
    text: str
    ts: str | None


@frozen
class Entry:
    """A message of a transcript before it is known to be new; ``key`` tells repeats."""

    said: Said
    key: str | None


class Unused(Exception):
    """A line that says nothing to a reader of the chat; the message is the reason."""


Reader = Callable[[Mapping[str, Any]], Entry]


@define
class Transcript:
    """Collects the newest items of a transcript whose entries ``read`` understands."""

    read: Reader
    limit: int
    text_chars: int
    _kept: deque[Said] = field(init=False)
    unused: Counter[str] = field(factory=Counter)
    _seen: OrderedDict[bytes, None] = field(factory=OrderedDict)

    def __attrs_post_init__(self) -> None:
        self._kept = deque(maxlen=self.limit)

    @property
    def items(self) -> tuple[Said, ...]:
        """The newest; one without a time has that of the one before it."""
        found: list[Said] = []
        ts = None
        for said in self._kept:
            ts = stamp(said.ts) or ts
            found.append(evolve(said, ts=ts))
        return tuple(found)

    def add(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            self._take(self.read(_object(line)))
        except Unused as reason:
            self.unused[str(reason)] += 1

    def too_long(self) -> None:
        self.unused["line too long"] += 1

    def _take(self, entry: Entry) -> None:
        said = entry.said
        if not said.text.strip():
            raise Unused("no text")
        if entry.key is not None:
            mark = hashlib.blake2b(entry.key.encode("utf-8", "replace"), digest_size=12).digest()
            if mark in self._seen:
                raise Unused("repeated")
            self._seen[mark] = None
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        text = _whole(said.text.strip()[: self.text_chars])
        last = self._kept[-1] if self._kept else None
        if last is not None and (last.role, last.text) == (said.role, text):
            raise Unused("said twice in a row")
        before = last.ts if last is not None else None
        self._kept.append(Said(said.role, text, said.ts or before))


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        found = _loosely(line)
    if not isinstance(found, dict):
        raise Unused("no object")
    return found


def _loosely(line: bytes) -> Any:
    """Unlike the fast decoder, this one takes half a surrogate pair."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise Unused("not JSON") from None


def _whole(text: str) -> str:
    """Half a surrogate pair becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def given_time(entry: Mapping[str, Any]) -> str | None:
    """What an entry says of its time; it may be none."""
    value = entry.get("timestamp")
    return value if isinstance(value, str) and len(value) <= 64 else None


def stamp(value: str | None) -> str | None:
    """An ISO time in whole seconds of UTC; a time without zone is taken as UTC."""
    if value is None:
        return None
    try:
        when = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    when = when.replace(tzinfo=when.tzinfo or datetime.UTC)
    try:
        return when.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return None


def texts(content: Any, kinds: tuple[str, ...]) -> str:
    """The text of a message's content: a string, or blocks of which some kinds are text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    blocks = (block for block in content if isinstance(block, dict) and block.get("type") in kinds)
    found = (block.get("text") for block in blocks)
    return "\n\n".join(text for text in found if isinstance(text, str) and text.strip())


def without_wrapper(text: str) -> str:
    """A prompt as the user wrote it."""
    before, mark, prompt = text.rpartition(PROMPT_MARK)
    if not mark or (before and not before.startswith("[")):
        return text
    return prompt.partition(HELPERS_MARK)[0]


def is_boilerplate(text: str, marks: tuple[str, ...]) -> bool:
    return text.lstrip().startswith(marks)
