"""Reading ``git diff --numstat -z``: what changed, in counts."""

from attrs import frozen


@frozen
class Change:
    """One changed file.  The counts are None for a binary one; ``old_path`` is set by a rename."""

    path: str
    additions: int | None
    deletions: int | None
    old_path: str | None = None

    @property
    def binary(self) -> bool:
        return self.additions is None


def read_changes(listing: bytes) -> tuple[Change, ...]:
    """A record is ``added TAB deleted TAB path NUL``; a renamed file has no path there, but the
    old and the new one behind it.  A record that was cut off is dropped."""
    fields = iter(listing.split(b"\0")[:-1])
    changes = []
    for record in fields:
        added, deleted, path = record.split(b"\t", 2)
        old = None
        if not path:
            old, path = next(fields, b""), next(fields, b"")
        old_path = _text(old) if old else None
        changes.append(Change(_text(path), _count(added), _count(deleted), old_path))
    return tuple(changes)


def _count(field: bytes) -> int | None:
    return None if field == b"-" else int(field)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")
