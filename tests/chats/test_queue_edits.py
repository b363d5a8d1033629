"""Waiting messages are edited, deleted and moved: durably, or not at all."""

import pytest
import trio
from house import FullDisk, finishing, living, settle
from scripted_guard import INIT, RESULT, ScriptedLauncher
from waiting import change_row, hide, paused_with, running_with, started, state, unchanged, waiting

from agentsdock.model.errors import BadRequest, Conflict, NotFound, PromptTooLarge
from agentsdock.model.requests import PatchSession
from agentsdock.store.protocol import StoreFull


async def test_an_edited_message_runs_with_its_new_text(house, autojump_clock):
    chat, process, [row] = await running_with(house, "old")
    answer = await house.edit(chat, row, prompt="new", client_capabilities=("c",))
    assert (answer["ok"], answer["queued_id"]) == (True, row)
    assert answer["item"] == (await house.rows(chat))[0]
    assert (answer["item"]["prompt"], answer["item"]["position"]) == ("new", 1)
    [event] = await house.of_type(chat, "turn_queue_updated")
    told = {name: event[name] for name in ("queued_id", "prompt", "position", "backend")}
    assert told == {"queued_id": row, "prompt": "new", "position": 1, "backend": "cursor"}
    assert (event["file_ids"], event["chat_references"]) == ([], [])
    assert event["client_capabilities"] == ["c"]
    await state(house, chat)
    process.exit(1)
    await house.launcher.next()
    assert await started(house, chat) == ["running", "new"]
    assert "new" in house.backend.prompts[-1]


async def test_a_new_text_drops_what_belonged_to_the_old_one(house, autojump_clock):
    chat, _, [row] = await running_with(house, "old")
    await change_row(house, chat, row, display_prompt="shown", chat_references=({"a": 1},))
    await house.edit(chat, row, prompt="new")
    [shown] = await house.rows(chat)
    assert (shown["prompt"], shown["display_prompt"]) == ("new", None)
    assert shown["chat_references"] == []


async def test_an_edit_without_a_text_keeps_it_and_how_it_is_shown(house, autojump_clock):
    chat, _, [row] = await running_with(house, "old")
    await change_row(house, chat, row, display_prompt="shown")
    await house.edit(chat, row, client_capabilities=("c",))
    [shown] = await house.rows(chat)
    assert (shown["prompt"], shown["display_prompt"]) == ("shown", "shown")
    assert (await state(house, chat))[0][0].prompt == "old"


EDITS = {
    "blank": (BadRequest, {"prompt": " \n"}),
    "too large": (PromptTooLarge, {"prompt": "x" * 3000}),
    "unknown file": (NotFound, {"file_ids": ("file_1",)}),
    "references": (BadRequest, {"prompt": "new", "chat_references": ({},)}),
}


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_that_would_not_be_accepted_as_a_message_changes_nothing(
    house, name, autojump_clock
):
    refusal, fields = EDITS[name]
    chat, _, [row] = await running_with(house, "old")
    async with unchanged(house, chat):
        with pytest.raises(refusal):
            await house.edit(chat, row, **fields)


ACTIONS = {
    "edit": lambda house, chat, row: house.edit(chat, row, prompt="new"),
    "delete": lambda house, chat, row: house.queue.delete(chat, row),
    "move": lambda house, chat, row: house.queue.move(chat, row, "down"),
    "run now": lambda house, chat, row: house.run_now(chat, row),
}
every_action = pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)


@every_action
async def test_a_row_acts_in_its_own_chat_only(house, action, autojump_clock):
    chat, _, [row, _] = await running_with(house, "1", "2")
    other, _, _ = await running_with(house, "1", "2")
    async with unchanged(house, chat, other):
        for place, known in ((other, row), (chat, "queued_0"), ("sess_0", row)):
            with pytest.raises(NotFound):
                await action(house, place, known)


@every_action
async def test_a_hidden_row_is_nobody_s_to_touch(house, action, autojump_clock):
    chat, _, [row, _] = await running_with(house, "1", "2")
    await hide(house, chat, row)
    async with unchanged(house, chat):
        with pytest.raises(Conflict):
            await action(house, chat, row)


@every_action
async def test_a_chat_that_is_being_deleted_takes_no_changes(house, action, autojump_clock):
    chat, process, [row, _] = await running_with(house, "1", "2")
    process.stop_takes = 1.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.chats.delete, chat)
        await settle()
        with pytest.raises(Conflict):
            await action(house, chat, row)
    with pytest.raises(NotFound):
        await action(house, chat, row)


@every_action
async def test_what_could_not_be_stored_has_not_happened(tmp_path, action, autojump_clock):
    disk = FullDisk()
    async with living(tmp_path, disk=disk) as house:
        chat, process, [row, _] = await running_with(house, "1", "2")
        async with unchanged(house, chat):
            disk.full = True
            with pytest.raises(StoreFull):
                await action(house, chat, row)
            disk.full = False
        assert not process.closed.is_set()
        assert (await action(house, chat, row))["ok"]


@every_action
async def test_who_goes_away_leaves_no_half_of_it(house, action, autojump_clock):
    chat, _, [row, _] = await running_with(house, "1", "2")
    before = await state(house, chat)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(action, house, chat, row)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await settle()
    queue, events = await state(house, chat)
    assert queue != before[0]
    assert events[len(before[1])]["queued_id"] == row


async def test_a_deleted_row_never_runs(house, autojump_clock):
    chat, process, [first, second] = await running_with(house, "1", "2")
    answer = await house.queue.delete(chat, first)
    assert answer == {"ok": True, "unqueued": True, "queued_id": first, "remaining": 1}
    [event] = await house.of_type(chat, "turn_unqueued")
    assert (event["queued_id"], event["prompt"], event["reason"]) == (first, "1", "deleted")
    assert event["remaining"] == 1
    process.exit(1)
    await house.launcher.next()
    assert await started(house, chat) == ["running", "2"]
    with pytest.raises(NotFound):
        await house.queue.delete(chat, second)


async def test_without_its_paused_head_a_queue_goes_on(house, autojump_clock):
    chat, [row] = await paused_with(house, "1")
    await house.post(chat, "2")
    await settle()
    assert not house.registry.require(chat).busy
    await house.queue.delete(chat, row)
    await house.launcher.next()
    assert await started(house, chat) == ["running", "2"]


async def test_a_new_head_does_not_wait_for_what_kept_the_old_one(house, autojump_clock):
    chat, process, [row, _] = await running_with(house, "1", "2")
    house.runtimes.trouble = "not usable"
    process.exit(1)
    await settle()
    house.runtimes.trouble = None
    began = trio.current_time()
    await house.queue.delete(chat, row)
    await house.launcher.next()
    assert trio.current_time() == began


@pytest.mark.parametrize(
    ("row", "direction", "order"),
    [
        (0, "down", "213"),
        (1, "up", "213"),
        (1, "down", "132"),
        (0, "up", "123"),
        (2, "down", "123"),
    ],
)
async def test_a_row_changes_places_with_its_neighbour(
    tmp_path, row, direction, order, autojump_clock
):
    async with living(tmp_path) as house:
        chat, _, rows = await running_with(house, "1", "2", "3")
        answer = await house.queue.move(chat, rows[row], direction)
        positions = [
            {"queued_id": rows[int(name) - 1], "position": place}
            for place, name in enumerate(order, 1)
        ]
        assert answer == {"ok": True, "queued_id": rows[row], "positions": positions}
        [event] = await house.of_type(chat, "turn_queue_reordered")
        assert (event["queued_id"], event["direction"]) == (rows[row], direction)
        assert event["positions"] == positions
        assert await waiting(house, chat) == list(order)
        await house.post(chat, "4")
        await state(house, chat)
    launcher = ScriptedLauncher(finishing(INIT, RESULT))
    async with living(tmp_path, launcher=launcher) as house:
        await settle()
        assert await started(house, chat) == ["running", *order, "4"]


async def test_a_row_does_not_change_places_with_a_hidden_one(house, autojump_clock):
    chat, _, rows = await running_with(house, "1", "2", "3")
    await hide(house, chat, rows[1])
    async with unchanged(house, chat):
        for row, direction in ((0, "down"), (2, "up")):
            with pytest.raises(Conflict):
                await house.queue.move(chat, rows[row], direction)


async def test_hidden_rows_are_not_listed_but_take_their_places(house, autojump_clock):
    chat, _, rows = await running_with(house, "1", "2", "3")
    await hide(house, chat, rows[1])
    assert [(r["prompt"], r["position"]) for r in await house.rows(chat)] == [("1", 1), ("3", 3)]
    answer = await house.queue.move(chat, rows[0], "up")
    assert [place["position"] for place in answer["positions"]] == [1, 3]
    assert (await house.post(chat, "4"))["position"] == 4


async def test_a_stop_does_not_pause_hidden_rows(house, autojump_clock):
    chat, _, rows = await running_with(house, "hidden", "1")
    await hide(house, chat, rows[0])
    await house.stop(chat)
    [event] = await house.of_type(chat, "turn_queue_paused")
    assert event["queued_ids"] == [rows[1]]
    await house.launcher.next()
    assert await started(house, chat) == ["running", "hidden"]
    assert [row["paused"] for row in await house.rows(chat)] == [True]


async def test_a_hidden_row_waits_behind_a_paused_one(house, autojump_clock):
    chat, _, rows = await running_with(house, "1", "hidden")
    await hide(house, chat, rows[1])
    await house.stop(chat)
    await trio.sleep(1000)
    assert await started(house, chat) == ["running"]


async def test_the_rows_of_an_archived_chat_can_be_put_in_order(house, autojump_clock):
    chat, rows = await paused_with(house, "1", "2", "3")
    await house.chats.patch(chat, PatchSession(archived=True))
    await house.edit(chat, rows[0], prompt="new")
    await house.queue.move(chat, rows[2], "up")
    await house.queue.delete(chat, rows[1])
    assert await waiting(house, chat) == ["new", "3"]
    await settle()
    assert not house.registry.require(chat).busy


@pytest.mark.parametrize("action", ["edit", "delete"])
@pytest.mark.parametrize("moments", range(0, 36, 3))
async def test_a_change_that_meets_the_start_of_its_row_is_whole_or_refused(
    house, action, moments, autojump_clock
):
    chat, process, [row] = await running_with(house, "old")
    process.exit(1)
    for _ in range(moments):
        await trio.lowlevel.checkpoint()
    try:
        await ACTIONS[action](house, chat, row)
    except NotFound:
        runs = ["old"]
    else:
        runs = ["new"] if action == "edit" else []
    await settle()
    assert await started(house, chat) == ["running", *runs]
    assert await waiting(house, chat) == []


async def test_a_change_waits_for_a_start_that_is_under_way(house, autojump_clock):
    chat, process, [row] = await running_with(house, "old")
    house.runtimes.gate, house.runtimes.admitting = trio.Event(), trio.Event()
    process.exit(1)
    await house.runtimes.admitting.wait()
    async with trio.open_nursery() as nursery:

        async def edit_too_late():
            with pytest.raises(NotFound):
                await house.edit(chat, row, prompt="new")

        nursery.start_soon(edit_too_late)
        await settle()
        house.runtimes.gate.set()
    assert await started(house, chat) == ["running", "old"]


async def test_a_start_that_fails_leaves_its_row_to_be_changed(house, autojump_clock):
    chat, process, [row] = await running_with(house, "old")
    house.runtimes.trouble = "not usable"
    process.exit(1)
    await settle()
    await house.edit(chat, row, prompt="new")
    house.runtimes.trouble = None
    await house.launcher.next()
    assert await started(house, chat) == ["running", "new"]


async def test_changes_without_a_running_turn_survive_a_crash(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat, rows = await paused_with(house, "1", "2", "3", "4")
        await house.queue.move(chat, rows[3], "up")
        await house.edit(chat, rows[0], prompt="new")
        await house.queue.delete(chat, rows[1])
        before = await house.rows(chat)
    async with living(tmp_path) as house:
        await trio.sleep(1000)
        assert await house.rows(chat) == before
        assert [row["prompt"] for row in before] == ["new", "4", "3"]
        assert all(row["pause_reason"] == "stopped" for row in before)
        assert house.launcher.launched == []
