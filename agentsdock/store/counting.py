"""How many events of certain types a chat has, without a look at each of them every time."""

from collections import OrderedDict
from collections.abc import Sequence

import apsw

BLOCK = 1024
KEPT_BLOCKS = 50_000
"""Of all chats together; those that were not asked for longest go first."""


class Counts:
    """Counts of whole blocks are kept: what is committed never changes, and numbers of deleted
    chats do not come back.  For the one reader's thread."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, Sequence[str]], dict[int, int]] = OrderedDict()

    def of(
        self, db: apsw.Connection, chat: int, types: tuple[str, ...], first: int, last: int
    ) -> int:
        """Events of these types among ``first`` to ``last``, which must all be committed."""
        known = self._blocks.setdefault((chat, types), {})
        self._blocks.move_to_end((chat, types))
        total = 0
        while first <= last:
            block = (first - 1) // BLOCK
            end = min(last, (block + 1) * BLOCK)
            if end - first + 1 < BLOCK:
                total += scanned(db, chat, types, first, end)
            else:
                if block not in known:
                    known[block] = scanned(db, chat, types, first, end)
                total += known[block]
            first = end + 1
        self._forget_some()
        return total

    def _forget_some(self) -> None:
        size = sum(len(known) for known in self._blocks.values())
        while size > KEPT_BLOCKS and len(self._blocks) > 1:
            _, oldest = self._blocks.popitem(last=False)
            size -= len(oldest)


def scanned(db: apsw.Connection, chat: int, types: tuple[str, ...], first: int, last: int) -> int:
    marks = ", ".join("?" * len(types))
    [(count,)] = db.execute(
        "SELECT count(*) FROM events INDEXED BY events_by_seq"  # noqa: S608
        f" WHERE chat = ? AND seq BETWEEN ? AND ? AND type IN ({marks})",
        (chat, first, last, *types),
    )
    return int(count)
