"""The stop button: what it ends, what it pauses, and the receipt."""

import pytest
import trio
from attrs import evolve
from house import living, settle
from scripted_guard import INIT, RESULT, text

from agentsdock.chats.stopping import STOP_SECONDS
from agentsdock.model.errors import Conflict, NotFound, Unavailable
from agentsdock.model.requests import PatchSession
from agentsdock.turns.verdicts import StopReason


async def running(house, *said):
    chat = await house.new()
    posted = await house.post(chat)
    process = await house.launcher.next()
    process.say(*said)
    await settle()
    return chat, process, posted["run_id"]


async def test_the_receipt_of_a_stop_tells_of_its_end(house, autojump_clock):
    chat, process, run_id = await running(house, INIT)
    process.stop_report = {"processes_ended": 4}
    receipt = await house.stop(chat)
    ending = await house.terminal(chat)
    assert receipt == {
        "ok": True,
        "stopped": True,
        "pending": False,
        "run_id": run_id,
        "outcome": "stopped",
        "terminal_seq": ending["seq"],
        "tree_empty": True,
        "processes_ended": 4,
        "elapsed_ms": 1.2,
        "rung": "subreaper",
    }
    assert ending["processes_ended"] == 4


async def test_a_stop_of_what_had_its_result_says_finished(house, autojump_clock):
    chat, _, run_id = await running(house, INIT, RESULT)
    receipt = await house.stop(chat)
    assert (receipt["stopped"], receipt["outcome"]) == (True, "finished")
    assert (receipt["run_id"], receipt["tree_empty"]) == (run_id, True)
    assert (await house.terminal(chat))["code"] is None


async def test_a_stop_of_nothing_says_idle(house, autojump_clock):
    chat = await house.new()
    for place in (chat, "sess_0000000000000000"):
        receipt = await house.stop(place)
        assert (receipt["stopped"], receipt["outcome"]) == (True, "idle")
        assert (receipt["run_id"], receipt["terminal_seq"]) == (None, None)


async def test_two_stops_at_once_get_the_same_receipt(house, autojump_clock):
    chat, process, _ = await running(house, INIT)
    process.stop_takes = 1.0
    receipts = []

    async def stop():
        receipts.append(await house.stop(chat))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        nursery.start_soon(stop)
    assert receipts[0] == receipts[1]
    assert process.ends == 1


def never_ending(house, chat, process):
    """Let the teardown take as long as the test wants; set the event to end it."""
    release = trio.Event()
    runner = house.registry.require(chat).live.runner
    runner._job = evolve(runner._job, limits=evolve(runner._job.limits, stop_grace_seconds=1000))

    async def end():
        with trio.CancelScope(shield=True):
            await release.wait()
        process.exit(-9, killed=True)
        return await process.wait_report()

    process.end = end
    return release


async def test_an_end_that_takes_too_long_is_said_to_be_pending(house, autojump_clock):
    chat, process, run_id = await running(house, INIT)
    release = never_ending(house, chat, process)
    receipt = await house.stop(chat)
    assert (receipt["pending"], receipt["outcome"]) == (True, "stopped")
    assert (receipt["run_id"], receipt["terminal_seq"]) == (run_id, None)
    release.set()
    assert (await house.terminal(chat))["code"] == "stopped"


async def test_a_stop_pauses_what_waits_and_a_later_message_waits_behind_it(house, autojump_clock):
    chat, _, _ = await running(house, INIT)
    queued = [await house.post(chat, str(n)) for n in (1, 2)]
    await house.stop(chat)
    [paused] = await house.of_type(chat, "turn_queue_paused")
    assert paused["queued_ids"] == [answer["queued_id"] for answer in queued]
    later = await house.post(chat, "3")
    assert (later["queued"], later["position"]) == (True, 3)
    await trio.sleep(1000)
    assert len(house.launcher.launched) == 1
    assert [row["paused"] for row in await house.rows(chat)] == [True, True, False]
    assert [turn.paused for turn in (await house.store.load()).queue] == [True, True, False]


async def test_a_stop_of_an_idle_chat_pauses_too_and_says_it_once(house, autojump_clock):
    house.runtimes.trouble = None
    chat, process, _ = await running(house, INIT)
    await house.post(chat, "second")
    house.runtimes.trouble = "not usable"
    process.exit(1)
    await settle()
    assert (await house.stop(chat))["outcome"] == "idle"
    assert (await house.stop(chat))["outcome"] == "idle"
    house.runtimes.trouble = None
    await trio.sleep(1000)
    assert len(house.launcher.launched) == 1
    assert (await house.types(chat)).count("turn_queue_paused") == 1


async def test_a_stop_of_a_job_s_run_pauses_nothing(house, autojump_clock):
    chat, _, _ = await running(house, INIT)
    live = house.registry.require(chat).live
    live.recorder.run = evolve(live.recorder.run, meta={"job_id": "job_1"})
    await house.post(chat, "second")
    await house.stop(chat)
    await house.launcher.next()
    assert "turn_queue_paused" not in await house.types(chat)


async def test_a_job_s_run_that_ends_while_its_stop_waits_is_still_a_job_s(house, autojump_clock):
    chat, _, _ = await running(house, INIT)
    live = house.registry.require(chat).live
    live.recorder.run = evolve(live.recorder.run, meta={"job_id": "job_1"})
    await house.post(chat, "second")
    async with trio.open_nursery() as nursery, house.registry.require(chat).lock:
        nursery.start_soon(house.stop, chat)
        await live.ended.wait()
        await settle()
    await house.launcher.next()
    assert "turn_queue_paused" not in await house.types(chat)


async def test_a_deletion_that_gave_up_stops_nothing_later(house, autojump_clock):
    chat = await house.new()
    house.runtimes.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.post, chat)
        await house.runtimes.admitting.wait()
        with pytest.raises(Conflict):
            await house.chats.delete(chat)
        house.runtimes.gate.set()
    await settle()
    assert house.registry.require(chat).busy
    assert not house.registry.require(chat).live.ending


async def test_a_stop_during_admission_stops_what_is_being_started(house, autojump_clock):
    house.runtimes.gate = trio.Event()
    chat = await house.new()
    receipts = []

    async def stop():
        receipts.append(await house.stop(chat))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.post, chat)
        await house.runtimes.admitting.wait()
        nursery.start_soon(stop)
        await settle()
        house.runtimes.gate.set()
    assert receipts[0]["outcome"] == "stopped"
    assert (await house.terminal(chat))["code"] == "stopped"


async def test_the_cli_is_ended_though_the_chat_s_lock_is_held(house, autojump_clock):
    chat, process, _ = await running(house, INIT)
    async with trio.open_nursery() as nursery, house.registry.require(chat).lock:
        nursery.start_soon(house.stop, chat)
        await settle()
        assert process.closed.is_set()


async def test_no_waiting_message_slips_through_between_a_stop_and_its_pause(house, autojump_clock):
    chat, process, _ = await running(house, INIT)
    await house.post(chat, "second")
    lock = house.registry.require(chat).lock
    async with trio.open_nursery() as nursery, lock:
        nursery.start_soon(house.stop, chat)
        await process.closed.wait()
        await settle()
    await trio.sleep(1000)
    assert len(house.launcher.launched) == 1
    assert [row["paused"] for row in await house.rows(chat)] == [True]


async def test_a_stop_whose_request_is_cut_off_still_stops(house, autojump_clock):
    chat, process, _ = await running(house, INIT)
    process.stop_takes = 1.0
    with trio.move_on_after(0.5):
        await house.stop(chat)
    assert (await house.terminal(chat))["code"] == "stopped"


async def test_a_deleted_chat_takes_its_rows_along_and_starts_none(house, autojump_clock):
    chat, process, _ = await running(house, INIT)
    for n in range(3):
        await house.post(chat, str(n))
    process.stop_takes = 1.0
    async with trio.open_nursery() as nursery:

        async def post_meanwhile():
            with pytest.raises(Conflict):
                await house.post(chat, "late")

        nursery.start_soon(house.chats.delete, chat)
        await settle()
        nursery.start_soon(post_meanwhile)
    assert len(house.launcher.launched) == 1
    assert house.registry.get(chat) is None
    loaded = await house.store.load()
    assert (loaded.sessions, loaded.queue, loaded.open_runs) == ((), (), ())
    with pytest.raises(NotFound):
        await house.post(chat)
    assert await house.chats.delete(chat) == {"ok": True, "deleted": False, "deleted_jobs": 0}


async def test_of_two_deletions_one_deletes(house, autojump_clock):
    chat = await house.new()
    answers = []

    async def delete():
        answers.append((await house.chats.delete(chat))["deleted"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        nursery.start_soon(delete)
    assert sorted(answers) == [False, True]


async def test_a_message_that_waited_for_a_deletion_finds_no_chat(house, autojump_clock):
    chat = await house.new()
    append, gate = house.store.append, trio.Event()
    refused = []

    async def slow_append(*unit):
        await gate.wait()
        return await append(*unit)

    async def post():
        try:
            await house.post(chat)
        except NotFound as error:
            refused.append(error)

    house.store.append = slow_append
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.chats.delete, chat)
        await settle()
        nursery.start_soon(post)
        await settle()
        gate.set()
    assert len(refused) == 1


async def test_a_chat_whose_turn_does_not_end_is_not_deleted_yet(house, autojump_clock):
    chat, process, _ = await running(house, INIT)
    release = never_ending(house, chat, process)
    with pytest.raises(Conflict):
        await house.chats.delete(chat)
    assert house.registry.get(chat) is not None
    release.set()
    assert (await house.terminal(chat))["stop_reason"] == StopReason.DELETED
    assert (await house.chats.delete(chat))["deleted"]


async def test_a_shutdown_takes_no_new_turn_and_lets_a_started_one_end_as_such(
    house, autojump_clock
):
    chat, other = await house.new(), await house.new()
    house.runtimes.gate = trio.Event()
    outcomes = []

    async def post(place):
        try:
            outcomes.append(await house.post(place))
        except Unavailable as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(post, chat)
        await house.runtimes.admitting.wait()
        nursery.start_soon(house.stopper.shut_down)
        await settle()
        house.runtimes.gate.set()
    await post(other)
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
    assert (await house.store.load()).open_runs == ()
    assert house.launcher.launched == []


async def test_a_turn_that_is_claimed_during_a_shutdown_is_told_of_it(house, autojump_clock):
    chat = await house.new()
    claim = house.store.claim
    gate = trio.Event()

    async def slow_claim(*unit):
        committed = await claim(*unit)
        await gate.wait()
        return committed

    house.store.claim = slow_claim
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.post, chat)
        await settle()
        await house.stopper.shut_down()
        gate.set()
    assert (await house.terminal(chat))["code"] == "server_shutdown"


async def test_a_shutdown_waits_for_every_ending_even_of_a_turn_that_came_late(
    house, autojump_clock
):
    def slowly(process):
        process.stop_takes = 5.0

    chat, late = await house.new(), await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    process.stop_takes = 1.0
    house.launcher.play = slowly
    claim, gate = house.store.claim, trio.Event()

    async def slow_claim(*unit):
        await gate.wait()
        return await claim(*unit)

    house.store.claim = slow_claim
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.post, late)
        await settle()

        async def claim_in_the_middle():
            await trio.sleep(0.5)
            gate.set()

        nursery.start_soon(claim_in_the_middle)
        await house.stopper.shut_down()
        assert not house.registry.require(chat).busy
        assert not house.registry.require(late).busy
    for place in (chat, late):
        assert (await house.terminal(place))["code"] == "server_shutdown"


async def test_granted_time_and_its_refusals(house, autojump_clock):
    chat, process, run_id = await running(house, INIT)
    granted = await house.chats.extend(chat, run_id, 100, "idle")
    limits = house.settings.backends["cursor"].limits
    assert granted == {
        "ok": True,
        "run_id": run_id,
        "idle_deadline": limits.idle_seconds + 100,
        "turn_deadline": limits.turn_seconds,
    }
    with pytest.raises(NotFound):
        await house.chats.extend(chat, "run_0000000000000000", 100, None)
    process.pipes_outlive_exit = True
    process.exit(1)
    await settle()
    with pytest.raises(Conflict):
        await house.chats.extend(chat, run_id, 100, None)
    await house.terminal(chat)
    with pytest.raises(Conflict):
        await house.chats.extend(chat, run_id, 100, None)
    other = await house.new()
    with pytest.raises(NotFound):
        await house.chats.extend(other, run_id, 100, None)


async def test_an_archived_chat_can_still_be_stopped(house, autojump_clock):
    chat, _, _ = await running(house, INIT, text("working"))
    await house.chats.patch(chat, PatchSession(archived=True))
    assert (await house.stop(chat))["outcome"] == "stopped"


async def test_what_runs_and_waits_is_told_in_health(tmp_path, autojump_clock, monkeypatch):
    async with living(tmp_path) as house:
        chat, _, run_id = await running(house, INIT)
        await house.post(chat, "second")
        health = house.chats.health()
        [run] = health["active_runs"]
        assert (health["active"], health["active_count"]) == ([chat], 1)
        assert (run["run_id"], run["state"]) == (run_id, "acknowledged")
        assert health["queued"] == {chat: 1}
        assert health["set_aside"] == {"database": None, "rows": 0}
        assert health["database_log"] == {"bytes": house.store.log_bytes, "large": False}
        monkeypatch.setattr("agentsdock.chats.chats.LARGE_LOG_BYTES", 0)
        assert house.chats.health()["database_log"]["large"] is True


async def test_a_stop_that_cannot_have_the_chat_in_time_says_pending_and_goes_on(
    house, autojump_clock
):
    chat, process, run_id = await running(house, INIT)
    await house.post(chat, "second")
    began = trio.current_time()
    async with house.registry.require(chat).lock:
        receipt = await house.stop(chat)
        assert trio.current_time() - began == STOP_SECONDS
        assert (receipt["stopped"], receipt["pending"]) == (True, True)
        assert process.closed.is_set()
    await trio.sleep(1000)
    assert [row["paused"] for row in await house.rows(chat)] == [True]
    assert len(house.launcher.launched) == 1
    assert (await house.terminal(chat))["run_id"] == run_id
