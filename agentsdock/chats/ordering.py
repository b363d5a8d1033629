"""The places of chats in their list: next to a neighbour, or dropped beside another chat."""

from contextlib import AsyncExitStack
from typing import Any

from attrs import evolve, frozen

from agentsdock.chats.chat import Chat
from agentsdock.chats.registry import Registry
from agentsdock.model.errors import BadRequest, Conflict
from agentsdock.model.requests import PlaceSession
from agentsdock.model.sessions import ORDER_STEP, Session


@frozen
class Ordering:
    registry: Registry

    async def place(self, session_id: str, request: PlaceSession) -> list[dict[str, Any]]:
        """Move a chat; all chats in their new order.

        The orders of its section are written anew, as one unit.  Raises DockError.
        """
        chat = self.registry.require(session_id)
        async with chat.lock:
            chat.require_present()
            if request.direction is not None:
                await self._arrange(chat, self._swapped(chat, request.direction), {})
            else:
                await self._drop(chat, request)
        return [other.detail() for other in self.registry.sorted()]

    async def room_behind(self, chat: Chat) -> float:
        """A sort order right behind a chat, whose lock the caller holds.

        Where none is left, its section is written anew first.
        """
        place = self.registry.place_after(chat)
        if place is not None:
            return place
        await self._arrange(chat, self._section(chat.section), {})
        return chat.session.sort_order + ORDER_STEP / 2

    def _section(self, section: tuple[object, ...]) -> list[Chat]:
        return [chat for chat in self.registry.sorted() if chat.section == section]

    def _swapped(self, chat: Chat, direction: str) -> list[Chat]:
        places = self._section(chat.section)
        own = places.index(chat)
        other = own + (1 if direction == "down" else -1)
        if 0 <= other < len(places):
            places[own], places[other] = places[other], places[own]
        return places

    async def _drop(self, chat: Chat, request: PlaceSession) -> None:
        target = self.registry.require(request.target_id or "")
        if target is chat:
            raise BadRequest("a chat cannot be placed beside itself")
        moved = self._moved(chat, target, request.target_folder)
        places = [other for other in self._section(target.section) if other is not chat]
        places.insert(places.index(target) + (request.placement == "after"), chat)
        await self._arrange(chat, places, moved)

    def _moved(self, chat: Chat, target: Chat, folder: str | None) -> dict[str, Any]:
        """The fields that take a chat into the section of another."""
        if chat.section == target.section:
            return {}
        if folder is None:
            raise BadRequest("both chats must be in the same section unless a folder is named")
        if target.session.archived or target.session.pinned:
            raise BadRequest("a chat can only be moved into a folder; pin or archive it instead")
        if folder.strip() != target.session.folder:
            raise Conflict("the target chat has been moved to another folder meanwhile")
        return {
            "folder": target.session.folder,
            "pinned": False,
            "pinned_at": None,
            "archived": False,
            "archived_at": None,
        }

    async def _arrange(self, chat: Chat, places: list[Chat], moved: dict[str, Any]) -> None:
        orders = {other.id: ORDER_STEP * n for n, other in enumerate(places, start=1)}

        def placed(session: Session) -> Session:
            fields = moved if session.id == chat.id else {}
            return evolve(session, sort_order=orders[session.id], **fields)

        async with AsyncExitStack() as changing:
            puts = [
                await changing.enter_async_context(self.registry.changing(other, placed))
                for other in places
                if placed(other.session) != other.session
            ]
            if puts:
                await self.registry.write(chat, [], puts)
