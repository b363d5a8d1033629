"""All chats in memory, and the one way to write to them."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from attrs import evolve

from agentsdock.chats.chat import Chat
from agentsdock.model.errors import Conflict, NotFound
from agentsdock.model.events import Committed, Draft, Encoded, encode
from agentsdock.model.sessions import ORDER_STEP, Head, Session
from agentsdock.model.times import iso_now
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import Change, Loaded, PutSession, Store


class Registry:
    """Chats by id.  What the store commits moves them on and wakes who watches."""

    def __init__(self, store: Store, feed: Feed) -> None:
        self.store = store
        self.feed = feed
        self._chats: dict[str, Chat] = {}
        self.set_aside: dict[str, object] = {}
        """What was found damaged at the start: the database's new name, and how many rows."""
        store.on_commit = self._committed

    def fill(self, loaded: Loaded) -> None:
        database = self.store.set_aside
        self.set_aside = {
            "database": database.name if database else None,
            "rows": len(loaded.set_aside),
        }
        for session in loaded.sessions:
            if session.initialising:
                continue
            self.add(Chat(session, loaded.heads.get(session.id, Head())))
        for row in loaded.queue:
            self._chats[row.session_id].queue.append(row)

    def add(self, chat: Chat) -> None:
        self._chats[chat.id] = chat

    def forget(self, chat: Chat) -> None:
        chat.gone = True
        self._chats.pop(chat.id, None)
        self.feed.drop(chat.id)

    def get(self, session_id: str) -> Chat | None:
        """Raises Conflict for a fork that is not ready yet."""
        chat = self._chats.get(session_id)
        if chat is not None and chat.session.initialising:
            raise Conflict("this chat is being made; try again in a moment")
        return chat

    def require(self, session_id: str) -> Chat:
        chat = self.get(session_id)
        if chat is None:
            raise NotFound("session not found")
        return chat

    def __iter__(self) -> Iterator[Chat]:
        return iter([c for c in self._chats.values() if not c.session.initialising])

    def sorted(self) -> list[Chat]:
        return sorted(self, key=attrgetter("order"))

    def top_of(self, section: tuple[object, ...]) -> float:
        """A sort order in front of everything in a section."""
        orders = [c.session.sort_order for c in self._chats.values() if c.section == section]
        return min(orders, default=ORDER_STEP) - ORDER_STEP

    def place_after(self, chat: Chat) -> float | None:
        """A sort order right behind a chat, if there is one left."""
        own = chat.session.sort_order
        orders = [c.session.sort_order for c in self._chats.values() if c.section == chat.section]
        behind = min((order for order in orders if order > own), default=own + 2 * ORDER_STEP)
        middle = (own + behind) / 2
        return middle if own < middle < behind else None

    async def write(
        self, chat: Chat, drafts: Sequence[Draft], changes: Sequence[Change] = ()
    ) -> list[Committed]:
        """Commit events and changes as one unit."""
        return await self.store.append(chat.id, encoded(chat, drafts), changes)

    async def change(
        self,
        chat: Chat,
        update: Callable[[Session], Session],
        drafts: Sequence[Draft] = (),
        changes: Sequence[Change] = (),
    ) -> list[Committed]:
        """Commit a new version of the session, with events."""
        async with self.changing(chat, update) as put:
            return await self.write(chat, drafts, [put, *changes])

    def changing(self, chat: Chat, update: Callable[[Session], Session]) -> "_Changing":
        """``async with`` the commit that makes a new version of the session durable."""
        return _Changing(chat, update)

    def _committed(self, session_id: str, events: Sequence[Committed], head: Head) -> None:
        chat = self._chats.get(session_id)
        if chat is not None:
            chat.advance(head)
            self.feed.publish(session_id, events, head)


class _Changing:
    """The new version is in memory at once, so that the next change builds on it; commits have
    the order of submission, so disk follows.  It is taken back if the commit fails and nothing
    was built on it."""

    def __init__(self, chat: Chat, update: Callable[[Session], Session]) -> None:
        self._chat = chat
        self._update = update

    async def __aenter__(self) -> PutSession:
        self._before = self._chat.session
        self._after = self._update(self._before)
        self._chat.update(self._after)
        return PutSession(self._after)

    async def __aexit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        failed = isinstance(error, Exception)
        if failed and self._chat.session is self._after:
            self._chat.update(self._before)


def encoded(chat: Chat, drafts: Sequence[Draft]) -> list[Encoded]:
    ts = iso_now()
    return [encode(chat.id, draft, ts) for draft in drafts]


def touched(session: Session) -> Session:
    return evolve(session, updated_at=iso_now())
