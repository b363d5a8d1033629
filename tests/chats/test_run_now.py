"""A waiting message is forced: it runs next, in place of what runs, and once."""

import contextlib

import pytest
import trio
from house import living, settle
from scripted_guard import INIT, RESULT
from waiting import (
    change_row,
    hide,
    paused_with,
    running_with,
    started,
    state,
    unchanged,
    waiting,
)

from agentsdock.chats import pressure
from agentsdock.chats.queue import MAX_REPLAYS, REPLAY_SECONDS, ForceSendDeferred, _Answers
from agentsdock.model.errors import Conflict, NotFound, Unavailable
from agentsdock.model.requests import PatchSession

STARTED = {
    "ok": True,
    "interrupted": True,
    "deferred": False,
    "replays_interrupted_message": False,
    "superseded_queued_ids": [],
}


async def test_a_forced_row_takes_the_place_of_what_runs(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2", "3")
    assert await house.run_now(chat, rows[1]) == {**STARTED, "queued_id": rows[1]}
    await house.launcher.next()
    assert process.closed.is_set()
    events = await house.events(chat)
    types = [event["type"] for event in events]
    begin = types.index("turn_queue_run_now")
    assert types[begin : begin + 3] == ["turn_queue_run_now", "turn_finished", "turn_started"]
    forced, ended, begun = events[begin : begin + 3]
    assert forced["interrupted_run_id"] == ended["run_id"]
    assert (forced["prompt"], forced["request_prompt"]) == ("2", "2")
    assert (forced["remaining"], forced["superseded_queued_ids"]) == (2, [])
    assert [place["queued_id"] for place in forced["positions"]] == [rows[1], rows[0], rows[2]]
    assert (ended["code"], ended["stopped"], ended["is_error"]) == ("stopped", True, False)
    assert ended["stop_reason"] == "superseded"
    assert ended["superseded_by_queued_id"] == begun["queued_id"] == rows[1]
    assert "turn_queue_paused" not in types
    assert await waiting(house, chat) == ["1", "3"]
    assert not any(row["paused"] or row["promoted"] for row in await house.rows(chat))


async def test_the_others_go_on_in_their_order(house, autojump_clock):
    chat, _, rows = await running_with(house, "1", "2", "3")
    await house.run_now(chat, rows[2])
    for _ in range(3):
        (await house.launcher.next()).exit(1)
    await settle()
    assert await started(house, chat) == ["running", "3", "1", "2"]


async def test_a_paused_row_runs_and_the_others_stay_paused(house, autojump_clock):
    chat, rows = await paused_with(house, "1", "2", "3")
    assert not (await house.run_now(chat, rows[1]))["interrupted"]
    process = await house.launcher.next()
    process.exit(1)
    await trio.sleep(1000)
    assert await started(house, chat) == ["running", "2"]
    assert [(r["prompt"], r["paused"]) for r in await house.rows(chat)] == [
        ("1", True),
        ("3", True),
    ]


async def test_pressing_ten_times_runs_it_once(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2")
    process.stop_takes = 1.0
    answers = []

    async def press():
        answers.append(await house.run_now(chat, rows[1]))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(press)
    await house.launcher.next()
    await press()
    assert answers == [{**STARTED, "queued_id": rows[1]}] * 11
    types = await house.types(chat)
    assert types.count("turn_queue_run_now") == 1
    assert await started(house, chat) == ["running", "2"]
    assert len(house.launcher.launched) == 2


async def test_the_answer_is_repeated_for_two_minutes(house, autojump_clock):
    chat, _, [row] = await running_with(house, "1")
    answer = await house.run_now(chat, row)
    await house.launcher.next()
    await trio.sleep(REPLAY_SECONDS - 1)
    assert await house.run_now(chat, row) == answer
    await trio.sleep(2)
    with pytest.raises(NotFound):
        await house.run_now(chat, row)


async def test_no_more_answers_are_kept_than_there_is_room_for(autojump_clock):
    answers = _Answers()
    for number in range(MAX_REPLAYS + 1):
        answers.keep("chat", str(number), {"number": number})
    assert answers.get("chat", "0") is None
    assert answers.get("chat", "1") == {"number": 1}
    assert answers.get("chat", str(MAX_REPLAYS)) == {"number": MAX_REPLAYS}
    assert answers.get("another chat", "1") is None


async def test_another_row_is_refused_while_one_takes_over(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2")
    process.stop_takes = 1.0
    await house.run_now(chat, rows[0])
    async with unchanged(house, chat):
        with pytest.raises(Conflict) as caught:
            await house.run_now(chat, rows[1])
    assert caught.value.code is None
    await house.launcher.next()
    assert await started(house, chat) == ["running", "1"]


async def test_a_row_that_was_deferred_before_takes_over_undisturbed(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2", said=())
    assert (await house.run_now(chat, rows[0], accept_deferred=True))["deferred"]
    process.say(INIT)
    process.stop_takes = 1.0
    await settle()
    await house.run_now(chat, rows[0])
    with pytest.raises(Conflict):
        await house.run_now(chat, rows[1])
    await house.launcher.next()
    assert await started(house, chat) == ["running", "1"]


async def test_a_turn_that_is_ending_anyway_defers_nothing(house, autojump_clock):
    chat, process, [row] = await running_with(house, "1", said=())
    process.stop_takes = 1.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.stop, chat)
        await settle()
        answer = await house.run_now(chat, row)
        assert (answer["ok"], answer["interrupted"]) == (True, False)
    await house.launcher.next()
    assert await started(house, chat) == ["running", "1"]


async def test_of_two_rows_that_are_forced_at_once_one_wins(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2")
    process.stop_takes = 1.0
    outcomes = []

    async def press(row):
        try:
            outcomes.append((await house.run_now(chat, row))["queued_id"])
        except Conflict:
            outcomes.append(None)

    async with trio.open_nursery() as nursery:
        for row in rows:
            nursery.start_soon(press, row)
    assert sorted(outcome is None for outcome in outcomes) == [False, True]
    await house.launcher.next()
    [winner] = filter(None, outcomes)
    assert (await house.of_type(chat, "turn_started"))[-1]["queued_id"] == winner


async def test_a_turn_that_its_cli_has_not_taken_up_is_not_interrupted(house, autojump_clock):
    chat, process, [row] = await running_with(house, "1", said=())
    with pytest.raises(ForceSendDeferred) as caught:
        await house.run_now(chat, row)
    detail = caught.value.detail()
    assert caught.value.status == 409
    assert (detail["code"], detail["retryable"]) == ("force_send_deferred", True)
    assert (detail["delivery_uncertain"], detail["queued_id"]) == (False, row)
    assert detail["message"]
    assert detail["action"]
    answer = await house.run_now(chat, row, accept_deferred=True)
    assert answer == {
        **STARTED,
        "ok": False,
        "queued_id": row,
        "interrupted": False,
        "deferred": True,
        "retryable": True,
        "delivery_uncertain": False,
        "message": detail["message"],
        "remaining": 1,
    }
    [event] = await house.of_type(chat, "turn_deferred")
    assert (event["queued_id"], event["message"]) == (row, detail["message"])
    assert "turn_queue_run_now" not in await house.types(chat)
    assert not process.closed.is_set()
    process.say(INIT)
    await settle()
    assert (await house.run_now(chat, row))["interrupted"]
    await house.launcher.next()
    assert await started(house, chat) == ["running", "1"]


async def test_a_turn_that_has_its_result_is_not_called_interrupted(house, autojump_clock):
    chat, _, [row] = await running_with(house, "1", said=(INIT, RESULT))
    assert not (await house.run_now(chat, row))["interrupted"]
    await house.launcher.next()
    [forced] = await house.of_type(chat, "turn_queue_run_now")
    [ended] = await house.of_type(chat, "turn_finished")
    assert forced["interrupted_run_id"] is None
    assert (ended["code"], ended["result_text"]) == (None, "done")
    assert "superseded_by_queued_id" not in ended


async def test_the_end_of_a_turn_wins_over_the_row_that_was_to_end_it(house, autojump_clock):
    chat, process, [row] = await running_with(house, "1")
    append = house.store.append

    async def end_meanwhile(*unit):
        process.exit(3)
        await house.terminal(chat)
        return await append(*unit)

    house.store.append = end_meanwhile
    assert not (await house.run_now(chat, row))["interrupted"]
    house.store.append = append
    await house.launcher.next()
    [ended] = await house.of_type(chat, "turn_finished")
    assert ended["code"] == "nonzero_exit"
    assert await started(house, chat) == ["running", "1"]


async def test_nothing_is_interrupted_for_a_row_that_could_not_start(
    house, monkeypatch, autojump_clock
):
    chat, process, [row] = await running_with(house, "1")
    for lack in ("memory", "runtime"):
        with monkeypatch.context() as patched:
            if lack == "memory":
                patched.setattr(pressure, "reason_to_wait", lambda settings, live: "too little")
            else:
                house.runtimes.trouble = "too little"
            answer = await house.run_now(chat, row, accept_deferred=True)
        assert (answer["deferred"], answer["message"]) == (True, "too little")
    assert not process.closed.is_set()
    assert (await house.types(chat)).count("turn_deferred") == 1
    house.runtimes.trouble = None
    assert (await house.run_now(chat, row))["ok"]


async def test_a_row_that_can_never_start_interrupts_nothing(house, autojump_clock):
    chat, process, [row] = await running_with(house, "1")
    await change_row(house, chat, row, backend="claude")
    async with unchanged(house, chat):
        with pytest.raises(Conflict) as caught:
            await house.run_now(chat, row, accept_deferred=True)
    detail = caught.value.detail()
    assert (detail["code"], detail["retryable"]) == ("force_send_not_retryable", False)
    assert not process.closed.is_set()


async def test_a_forced_row_gets_the_place_that_it_made_free(tmp_path, autojump_clock):
    async with living(tmp_path, max_active_runs=1) as house:
        waits = await house.new()
        chat, _, rows = await running_with(house)
        await house.post(waits, "waits longer")
        row = (await house.post(chat, "forced"))["queued_id"]
        await settle()
        assert (await house.run_now(chat, row))["interrupted"]
        await house.launcher.next()
        assert await started(house, chat) == ["running", "forced"]
        assert not house.registry.require(waits).busy
        assert rows == []


async def test_a_row_that_is_forced_in_an_idle_chat_waits_for_pressure_to_end(
    house, monkeypatch, autojump_clock
):
    chat, rows = await paused_with(house, "1", "2")
    with monkeypatch.context() as patched:
        patched.setattr(pressure, "reason_to_wait", lambda settings, live: "too little")
        assert (await house.run_now(chat, rows[1]))["ok"]
        await settle()
        [event] = await house.of_type(chat, "turn_deferred")
        assert (event["queued_id"], event["message"]) == (rows[1], "too little")
        assert [row["promoted"] for row in await house.rows(chat)] == [True, False]
        assert (await house.run_now(chat, rows[0]))["ok"]
        assert [(r["prompt"], r["promoted"]) for r in await house.rows(chat)] == [
            ("1", True),
            ("2", False),
        ]
        await state(house, chat)
    (await house.launcher.next()).exit(1)
    await house.launcher.next()
    assert await started(house, chat) == ["running", "1", "2"]


async def test_a_forced_row_does_not_wait_until_its_runtime_is_tried_again(house, autojump_clock):
    chat, process, [row] = await running_with(house, "1")
    house.runtimes.trouble = "not usable"
    process.exit(1)
    await settle()
    house.runtimes.trouble = None
    began = trio.current_time()
    await house.run_now(chat, row)
    await house.launcher.next()
    assert trio.current_time() == began


async def test_no_row_overtakes_a_hidden_one(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "hidden", "2")
    await hide(house, chat, rows[1])
    async with unchanged(house, chat):
        with pytest.raises(Conflict):
            await house.run_now(chat, rows[2])
    assert not process.closed.is_set()
    assert (await house.run_now(chat, rows[0]))["ok"]


async def test_an_archived_chat_runs_nothing(house, autojump_clock):
    chat, process, [row] = await running_with(house, "1")
    await house.chats.patch(chat, PatchSession(archived=True))
    async with unchanged(house, chat):
        with pytest.raises(Conflict):
            await house.run_now(chat, row)
    assert not process.closed.is_set()


async def test_nothing_is_forced_while_the_server_goes_down(house, autojump_clock):
    chat, process, [row] = await running_with(house, "1")
    process.stop_takes = 1.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.stopper.shut_down)
        await settle()
        with pytest.raises(Unavailable):
            await house.run_now(chat, row)
    assert (await house.terminal(chat))["code"] == "server_shutdown"
    assert "turn_queue_run_now" not in await house.types(chat)


async def test_a_crash_forgets_no_forced_row(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat, process, rows = await running_with(house, "1", "2")
        process.stop_takes = 1.0
        await house.run_now(chat, rows[1])
    async with living(tmp_path) as house:
        await house.launcher.next()
        assert await started(house, chat) == ["running", "2"]
        [ended] = await house.of_type(chat, "turn_stopped")
        assert ended["code"] == "server_restart"
        with pytest.raises(NotFound):
            await house.run_now(chat, rows[1])


@pytest.mark.parametrize(("committed", "runs"), [(True, "2"), (False, "1")])
async def test_a_crash_before_the_stop_forces_the_row_if_that_is_durable(
    tmp_path, committed, runs, autojump_clock
):
    async with living(tmp_path) as house:
        chat, process, rows = await running_with(house, "1", "2")
        append = house.store.append

        async def commit_and_die(*unit):
            if committed:
                await append(*unit)
            await trio.sleep_forever()

        house.store.append = commit_and_die
        house.nursery.start_soon(house.run_now, chat, rows[1])
        await settle()
        assert not process.asked_to_stop.is_set()
    async with living(tmp_path) as house:
        await house.launcher.next()
        assert await started(house, chat) == ["running", runs]
        [ended] = await house.of_type(chat, "turn_stopped")
        assert ended["code"] == "server_restart"


async def test_a_row_that_was_forced_and_paused_stays_paused_over_a_crash(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat, process, rows = await running_with(house, "1", "2")
        process.stop_takes = 1.0
        await house.run_now(chat, rows[1])
        await house.stop(chat)
    async with living(tmp_path) as house:
        await trio.sleep(1000)
        assert house.launcher.launched == []
        assert [(r["prompt"], r["paused"]) for r in await house.rows(chat)] == [
            ("2", True),
            ("1", True),
        ]


async def test_a_forced_row_starts_first_after_a_shutdown(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat, process, rows = await running_with(house, "1", "2")
        process.stop_takes = 1.0
        await house.run_now(chat, rows[1])
        await house.stopper.shut_down()
        assert (await house.terminal(chat))["superseded_by_queued_id"] == rows[1]
    async with living(tmp_path) as house:
        await house.launcher.next()
        assert await started(house, chat) == ["running", "2"]


async def test_a_stop_takes_a_forced_row_back(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2")
    process.stop_takes = 1.0
    await house.run_now(chat, rows[1])
    await house.stop(chat)
    await trio.sleep(60)
    assert await started(house, chat) == ["running"]
    assert [(r["prompt"], r["paused"]) for r in await house.rows(chat)] == [
        ("2", True),
        ("1", True),
    ]
    await house.run_now(chat, rows[1])
    await house.launcher.next()
    assert await started(house, chat) == ["running", "2"]


@pytest.mark.parametrize("moments", range(0, 30, 3))
async def test_a_stop_beside_a_forced_row_leaves_nothing_to_start(house, moments, autojump_clock):
    chat, _, rows = await running_with(house, "1", "2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.run_now, chat, rows[1])
        for _ in range(moments):
            await trio.lowlevel.checkpoint()
        await house.stop(chat)
        begun = len(house.launcher.launched)
    await state(house, chat)
    if moments:  # the row was forced first
        await trio.sleep(1000)
        assert len(house.launcher.launched) == begun
        assert not house.registry.require(chat).busy
        assert all(row["paused"] for row in await house.rows(chat))


async def test_a_forced_row_that_is_deleted_is_not_said_to_run(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2")
    process.stop_takes = 1.0
    await house.run_now(chat, rows[1])
    await house.queue.delete(chat, rows[1])
    with pytest.raises(NotFound):
        await house.run_now(chat, rows[1])
    await house.launcher.next()
    assert await started(house, chat) == ["running", "1"]


async def test_a_forced_row_can_be_edited_until_it_starts(house, autojump_clock):
    chat, process, [row] = await running_with(house, "old")
    process.stop_takes = 1.0
    await house.run_now(chat, row)
    await house.edit(chat, row, prompt="new")
    await house.launcher.next()
    assert await started(house, chat) == ["running", "new"]


async def test_a_row_that_is_moved_before_a_forced_one_runs_first(house, autojump_clock):
    chat, process, rows = await running_with(house, "1", "2")
    process.stop_takes = 1.0
    await house.run_now(chat, rows[1])
    await house.queue.move(chat, rows[0], "up")
    assert not any(row["promoted"] for row in await house.rows(chat))
    await house.launcher.next()
    assert await started(house, chat) == ["running", "1"]


async def test_a_job_s_run_is_superseded_like_any_other(house, autojump_clock):
    chat, _, rows = await running_with(house, "1", "2")
    await change_row(house, chat, rows[0], meta={"job_id": "job_1"})
    await house.run_now(chat, rows[0])
    process = await house.launcher.next()
    process.say(INIT)
    await settle()
    await house.run_now(chat, rows[1])
    await house.launcher.next()
    [_, ended] = await house.of_type(chat, "turn_finished")
    assert (ended["job_id"], ended["superseded_by_queued_id"]) == ("job_1", rows[1])


async def test_a_chat_that_is_deleted_while_the_runtime_is_asked_runs_nothing(
    house, autojump_clock
):
    chat, process, rows = await running_with(house, "1", "2")
    house.runtimes.gate, house.runtimes.admitting = trio.Event(), trio.Event()
    outcomes = []

    async def press():
        with pytest.raises(Conflict, match="deleted"):
            await house.run_now(chat, rows[1])
        outcomes.append("refused")

    async def delete():
        assert (await house.chats.delete(chat))["deleted"]
        outcomes.append("deleted")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(press)
        await house.runtimes.admitting.wait()
        nursery.start_soon(delete)
        await process.closed.wait()
        house.runtimes.gate.set()
    assert outcomes == ["refused", "deleted"]
    assert house.registry.get(chat) is None
    assert house.launcher.launched == [process]


async def test_a_row_that_is_deleted_while_the_runtime_is_asked_is_forced_first(
    house, autojump_clock
):
    chat, _, rows = await running_with(house, "1", "2")
    house.runtimes.gate, house.runtimes.admitting = trio.Event(), trio.Event()
    outcomes = []

    async def press():
        outcomes.append((await house.run_now(chat, rows[1]))["interrupted"])

    async def delete():
        with contextlib.suppress(NotFound):
            outcomes.append((await house.queue.delete(chat, rows[1]))["unqueued"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(press)
        await house.runtimes.admitting.wait()
        nursery.start_soon(delete)
        await settle()
        house.runtimes.gate.set()
    assert outcomes[0] is True
    (await house.launcher.next()).exit(1)
    await settle()
    begun = await started(house, chat)
    # Whichever comes first: it runs, or it is told to have been taken out, and never both.
    gone = [event["queued_id"] for event in await house.of_type(chat, "turn_unqueued")]
    assert ("2" in begun) != (rows[1] in gone)
