"""What the next life of the server makes of the last one."""

import trio
from house import FullDisk, living, settle
from scripted_guard import INIT, RESULT, text

from agentsdock.chats import recovery
from agentsdock.guard.sweep import SweepRecord, SweepResult
from agentsdock.model.requests import PatchSession
from agentsdock.model.turns import RunState
from agentsdock.store.sqlite import open_store, run_inline


async def test_an_open_run_is_closed_once(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat = await house.new()
        await house.post(chat)
        process = await house.launcher.next()
        process.say(INIT)
        await settle()
    for _ in range(3):
        async with living(tmp_path) as house:
            await settle()
            endings = await house.of_type(chat, "turn_finished", "turn_stopped")
            assert [event["code"] for event in endings] == ["server_restart"]
            assert (await house.store.load()).open_runs == ()


async def test_rows_of_every_chat_run_and_none_twice(tmp_path, autojump_clock):
    async with living(tmp_path, max_active_runs=1) as house:
        chats = [await house.new() for _ in range(4)]
        for number, chat in enumerate(chats * 2):
            await house.post(chat, str(number))
        await settle()
    started = []
    async with living(tmp_path, max_active_runs=1) as house:
        # The message that ran when the server died is not run again.
        for _ in range(7):
            process = await house.launcher.next()
            started.append(process.spec.argv[1].rpartition("\n")[2])
            process.say(INIT, RESULT)
            process.exit(0)
        await trio.sleep(1000)
        assert len(house.launcher.launched) == 7
    assert started == ["1", "2", "3", "4", "5", "6", "7"]


async def test_paused_rows_stay_paused_and_archived_ones_wait(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        paused, archived = await house.new(), await house.new()
        for chat in (paused, archived):
            await house.post(chat)
            await house.post(chat, "second")
        await house.stop(paused)
        await house.chats.patch(archived, PatchSession(archived=True))
        await settle()
    async with living(tmp_path) as house:
        await trio.sleep(1000)
        assert house.launcher.launched == []
        assert [row["paused"] for row in await house.rows(paused)] == [True]
        await house.chats.patch(archived, PatchSession(archived=False))
        await house.launcher.next()


async def test_a_crash_before_the_claim_leaves_the_row_queued(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat = await house.new()
        await house.post(chat)
        process = await house.launcher.next()
        await house.post(chat, "second")
        house.runtimes.gate = trio.Event()
        house.runtimes.admitting = trio.Event()
        process.exit(1)
        await house.runtimes.admitting.wait()
        await settle()
    async with living(tmp_path) as house:
        await house.launcher.next()
        started = await house.of_type(chat, "turn_started")
        assert [event["prompt"] for event in started] == ["do it", "second"]


async def test_the_delivery_state_of_a_run_is_on_disk_as_it_moves_on(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        house.launcher.gate = trio.Event()
        chat = await house.new()
        posted = await house.post(chat)
        await settle()
        states = [(await house.store.run_events(posted["run_id"]))[0]]
        house.launcher.gate.set()
        process = await house.launcher.next()
        await settle()
        states.append((await house.store.run_events(posted["run_id"]))[0])
        process.say(INIT)
        await settle()
        states.append((await house.store.run_events(posted["run_id"]))[0])
        process.say(RESULT)
        process.exit(0)
        await house.terminal(chat)
        states.append((await house.store.run_events(posted["run_id"]))[0])
    assert [run.state for run in states] == [
        RunState.LEASED,
        RunState.HANDED_OVER,
        RunState.ACKNOWLEDGED,
        RunState.ACKNOWLEDGED,
    ]
    assert states[0].guard_pid is None
    for run in states[1:]:
        assert (run.guard_pid, run.guard_start) == (process.guard_pid, process.guard_start)
        assert (run.cli_pid, run.cli_start) == (process.pid, process.start_ticks)


async def test_leftovers_are_swept_by_what_is_on_record_and_told(
    tmp_path, monkeypatch, autojump_clock
):
    asked = []

    async def sweep(records, *, marker_prefix):
        await trio.lowlevel.checkpoint()
        asked.append((list(records), marker_prefix))
        return SweepResult((), survivors=(99,))

    async with living(tmp_path) as house:
        chat = await house.new()
        await house.post(chat)
        process = await house.launcher.next()
        await settle()
    async with open_store(tmp_path / "state", run_blocking=run_inline) as store:
        monkeypatch.setattr(recovery, "sweep", sweep)
        house.registry.store = store
        async with trio.open_nursery() as nursery:
            await recovery.recover(house.registry, await store.load(), "identity", nursery)
        rows, _ = await store.read_page(chat, limit=1)
    assert asked == [
        (
            [
                SweepRecord(process.guard_pid, process.guard_start),
                SweepRecord(process.pid, process.start_ticks),
            ],
            "identity:",
        )
    ]
    ending = rows[0].decode()
    assert (ending["code"], ending["tree_empty"]) == ("server_restart", False)


async def test_a_boot_without_space_comes_up_and_closes_the_run_when_there_is_some(
    tmp_path, monkeypatch, autojump_clock
):
    async with living(tmp_path) as house:
        chat = await house.new()
        await house.post(chat)
        process = await house.launcher.next()
        await house.post(chat, "second")
        process.say(INIT, text("so far"))
        await settle()
    full = FullDisk(full=True)
    async with living(tmp_path, disk=full) as house:
        await trio.sleep(20)
        assert await house.of_type(chat, "turn_stopped") == []
        assert house.launcher.launched == []
        full.full = False
        await house.launcher.next()
        [ending] = await house.of_type(chat, "turn_stopped")
        assert ending["code"] == "server_restart"


async def test_a_damaged_row_is_told_in_health(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat, sound = await house.new(), await house.new()

        def damage(db):
            db.execute("UPDATE sessions SET body = ? WHERE id = ?", (b"{}", chat))

        await house.store._in_writer(damage, abandon=False)
    async with living(tmp_path) as house:
        assert house.chats.health()["set_aside"] == {"database": None, "rows": 1}
        assert [session["id"] for session in house.chats.details()] == [sound]
    (tmp_path / "state" / "agentsdock.db").write_bytes(b"garbage " * 1000)
    async with living(tmp_path) as house:
        told = house.chats.health()["set_aside"]
        assert told["database"].startswith("agentsdock.db.damaged-")
        assert house.chats.details() == []
