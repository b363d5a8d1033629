"""Chats, waiting turns and runs as stored JSON.

Writing cannot produce what reading refuses.  Reading is strict about types and says which
field is wrong.
"""

from typing import Any, TypeVar

import cattrs
import msgspec

from agentsdock.model.convert import converter
from agentsdock.model.files import FileRecord
from agentsdock.model.sessions import CURSOR_PERMISSION_MODES, Session
from agentsdock.model.turns import QueuedTurn, Run
from agentsdock.store.protocol import StoreError

T = TypeVar("T")

dump = msgspec.json.Encoder().encode
"""Raises UnicodeEncodeError for text that is no Unicode (a lone surrogate)."""


class Unreadable(StoreError):
    """A stored body that is not what it should be; the message names the fields."""


def _decode(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Unreadable(str(error)) from error
    if not isinstance(found, dict):
        raise Unreadable("not a JSON object")
    return found


def _structure(record: dict[str, Any], kind: type[T]) -> T:
    try:
        return converter.structure(record, kind)
    except (cattrs.BaseValidationError, RecursionError) as error:
        raise Unreadable("; ".join(cattrs.transform_error(error))) from error


def read_session(body: bytes) -> tuple[Session, bool]:
    """The chat, and whether it had to be repaired and should be saved."""
    record = _decode(body)
    mode = record.setdefault("cursor_permission_mode", "default")
    repaired = mode not in CURSOR_PERMISSION_MODES
    if repaired:
        record["cursor_permission_mode"] = "default"
    return _structure(record, Session), repaired


def read_queued(body: bytes) -> QueuedTurn:
    return _structure(_decode(body), QueuedTurn)


def read_run(body: bytes) -> Run:
    return _structure(_decode(body), Run)


def read_file_record(body: bytes) -> FileRecord:
    return _structure(_decode(body), FileRecord)
