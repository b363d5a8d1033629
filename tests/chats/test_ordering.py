"""Chats are moved within their section, and into a folder beside a chat of it."""

import msgspec
import pytest
from attrs import evolve

from agentsdock.chats.ordering import Ordering
from agentsdock.model.errors import BadRequest, Conflict, NotFound
from agentsdock.model.requests import PatchSession, PlaceSession
from agentsdock.web.parsing import Body
from agentsdock.web.sessions import read_place


def order(house):
    return [chat.session.title for chat in house.registry.sorted()]


async def chats(house, *titles, **fields):
    """In the order of their titles: each new chat goes to the top."""
    made = {title: await house.new(title=title, **fields) for title in reversed(titles)}
    return [made[title] for title in titles]


async def test_a_chat_swaps_with_its_neighbour_and_stays_at_the_edge(house):
    a, b, c = await chats(house, "a", "b", "c")
    await house.chats.place(b, PlaceSession(direction="up"))
    assert order(house) == ["b", "a", "c"]
    await house.chats.place(b, PlaceSession(direction="up"))
    assert order(house) == ["b", "a", "c"]
    rows = await house.chats.place(c, PlaceSession(direction="down"))
    assert [row["title"] for row in rows] == ["b", "a", "c"]
    await house.chats.place(a, PlaceSession(direction="down"))
    assert order(house) == ["b", "c", "a"]
    orders = sorted(house.session(chat).sort_order for chat in (a, b, c))
    assert orders == [1000, 2000, 3000]


async def test_a_chat_is_dropped_before_or_after_another(house):
    a, _, c = await chats(house, "a", "b", "c")
    await house.chats.place(c, PlaceSession(target_id=a))
    assert order(house) == ["c", "a", "b"]
    await house.chats.place(c, PlaceSession(target_id=a, placement="after"))
    assert order(house) == ["a", "c", "b"]


async def test_a_chat_moves_into_the_folder_of_its_target(house):
    [a] = await chats(house, "a", folder="One")
    [b] = await chats(house, "b", folder="Two", pinned=True)
    place = PlaceSession(target_id=a, placement="after", target_folder="One")
    await house.chats.place(b, place)
    moved = house.session(b)
    assert (moved.folder, moved.pinned, moved.pinned_at) == ("One", False, None)
    assert order(house) == ["a", "b"]


async def test_folders_whose_names_differ_in_case_only_stand_each_by_itself(house):
    for number in range(4):
        await house.new(title=f"{number}", folder="Work" if number % 2 else "work")
    await house.new(title="after", folder="x")
    await house.new(title="before", folder="A")
    assert order(house) == ["before", "3", "1", "2", "0", "after"]


async def test_what_cannot_be_placed_is_refused_and_nothing_moves(house):
    [a] = await chats(house, "a", folder="One")
    [b] = await chats(house, "b", folder="Two")
    [pinned] = await chats(house, "p", pinned=True)
    before = order(house)
    with pytest.raises(BadRequest, match="same section"):
        await house.chats.place(a, PlaceSession(target_id=b))
    with pytest.raises(Conflict):
        await house.chats.place(a, PlaceSession(target_id=b, target_folder="Three"))
    with pytest.raises(BadRequest):
        await house.chats.place(a, PlaceSession(target_id=pinned, target_folder="General"))
    with pytest.raises(BadRequest):
        await house.chats.place(a, PlaceSession(target_id=a))
    for chat, target in (("sess_0", a), (a, "sess_0")):
        with pytest.raises(NotFound):
            await house.chats.place(chat, PlaceSession(target_id=target))
    assert order(house) == before


async def test_the_order_is_that_of_the_disk(house):
    a, b, _ = await chats(house, "a", "b", "c")
    await house.chats.place(a, PlaceSession(target_id=b, placement="after"))
    loaded = {session.id: session for session in (await house.store.load()).sessions}
    assert loaded == {chat.id: chat.session for chat in house.registry}


async def test_an_archived_chat_leaves_its_section_for_a_folder(house):
    [a] = await chats(house, "a")
    [b] = await chats(house, "b")
    await house.chats.patch(a, PatchSession(archived=True))
    await house.chats.place(a, PlaceSession(target_id=b, target_folder="General"))
    assert not house.session(a).archived


@pytest.mark.parametrize("fields", [{}, {"direction": "up", "target_id": "sess_1"}])
def test_a_place_is_named_in_one_way_of_two(fields):
    with pytest.raises(BadRequest):
        read_place(Body(msgspec.json.encode(fields)))


def test_before_is_where_a_chat_goes_unless_said_otherwise():
    assert read_place(Body(b'{"target_id":"sess_1"}')).placement == "before"


async def test_there_is_always_room_right_behind_a_chat(house):
    parent, last = await chats(house, "parent", "last")
    before = house.session(last).sort_order
    forks = []
    for number in range(120):
        title = f"fork {number}"
        forks.insert(0, title)
        child = house.registry.require(await house.new(title=title))
        place = await Ordering(house.registry).room_behind(house.registry.require(parent))
        await house.registry.change(child, lambda session, at=place: evolve(session, sort_order=at))
    assert order(house) == ["parent", *forks, "last"]
    assert house.session(last).sort_order > before
