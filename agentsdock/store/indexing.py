"""When the search index is brought up to date, and what happens when it is damaged."""

import apsw
from attrs import define

from agentsdock.store import search
from agentsdock.store.engine import DAMAGE, transaction

RENEWALS = 3
"""How often one life builds a damaged index anew: what damages it again may lie elsewhere."""


@define(eq=False)
class Indexer:
    """Works in the writer's thread, in small transactions of its own."""

    owed: int = 0
    """Bytes of events that this life has committed and not indexed yet."""
    damaged: bool = False
    """Until it is begun anew; searches are not complete meanwhile."""
    _renewals: int = 0
    _checked: bool = False

    def step(self, db: apsw.Connection) -> int:
        """Index a few events; the bytes they count for, 0 where there is nothing left to do."""
        try:
            return self._step(db)
        except DAMAGE:
            self.damaged = True
            return int(self._renewals < RENEWALS)

    def keep_up(self, db: apsw.Connection, size: int) -> None:
        """Index as much as that."""
        while size > 0 and (done := self.step(db)):
            size -= done

    def _step(self, db: apsw.Connection) -> int:
        if not self._checked:
            self._checked = True
            self.damaged |= not search.answers(db)
        if self.damaged:
            if self._renewals == RENEWALS:
                return 0
            self._renewals += 1
            with transaction(db):
                search.begin_anew(db)
            self.damaged = False
        with transaction(db):
            done = search.index_some(db)
        self.owed = max(0, self.owed - done) if done else 0
        return done
