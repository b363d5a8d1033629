"""A file that belongs to a chat: what a user gave to it, or an agent made."""

from typing import Any

from attrs import asdict, frozen


@frozen
class FileRecord:
    """Where a chat's file lies and what it is.  ``kind`` is upload or artifact, sizes in bytes.

    ``title``, ``text`` and ``source_path`` are an artifact's; the ``forked_from`` ids a copy's.
    """

    id: str
    session_id: str
    kind: str
    filename: str
    path: str
    size: int
    content_type: str
    created_at: str
    title: str | None = None
    text: str | None = None
    source_path: str | None = None
    forked_from_file_id: str | None = None
    forked_from_session_id: str | None = None

    def public(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@frozen
class ListedFile:
    """A file and the event that brought it into the chat."""

    record: FileRecord
    event_seq: int
    event_type: str
    event_id: str

    def public(self) -> dict[str, Any]:
        return {
            **self.record.public(),
            "event_id": self.event_id,
            "event_seq": self.event_seq,
            "event_type": self.event_type,
        }
