"""The small parts: work that outlives its request, memory pressure, recordings, identity."""

import contextvars
import os
import uuid

import pytest
import trio
from house import finishing, living, make_settings, settle
from scripted_guard import INIT, RESULT, ScriptedLauncher

from agentsdock.chats import capsules, pressure
from agentsdock.chats.capsules import CapsuleKeeper, capsule_path
from agentsdock.chats.dock import identify
from agentsdock.chats.tasks import contained, hand_over
from agentsdock.model.errors import Conflict, Unavailable
from agentsdock.turns.capsule import CapsuleWriter, compressed_path, open_capsule

ASKED = contextvars.ContextVar("ASKED", default=None)


async def test_the_outcome_of_handed_over_work_comes_back(nursery):
    async def double(number):
        await trio.lowlevel.checkpoint()
        if number < 0:
            raise Conflict("negative")
        return 2 * number

    assert await hand_over(nursery, double, 4) == 8
    with pytest.raises(Conflict, match="negative"):
        await hand_over(nursery, double, -1)


async def test_handed_over_work_goes_on_without_its_caller(nursery, autojump_clock):
    done = trio.Event()

    async def work():
        await trio.sleep(10)
        done.set()

    with trio.move_on_after(1):
        await hand_over(nursery, work)
    assert not done.is_set()
    with trio.fail_after(20):
        await done.wait()


async def test_work_that_is_cut_off_by_a_shutdown_is_told_to_its_caller(autojump_clock):
    told = []

    async def ask(nursery):
        try:
            await hand_over(nursery, trio.sleep_forever)
        except Unavailable as error:
            told.append(error)

    async with trio.open_nursery() as callers, trio.open_nursery() as house:
        callers.start_soon(ask, house)
        await settle()
        house.cancel_scope.cancel()
    assert len(told) == 1


async def test_handed_over_work_knows_nothing_of_the_request(nursery):
    ASKED.set("by a client")

    async def look():
        await trio.lowlevel.checkpoint()
        return ASKED.get()

    assert await hand_over(nursery, look) is None


async def test_what_is_contained_is_any_bug_but_no_cancellation(autojump_clock):
    with contained("it broke"):
        raise ZeroDivisionError
    with trio.move_on_after(1) as scope, contained("it broke"):
        await trio.sleep_forever()
    assert scope.cancelled_caught


@pytest.fixture
def meminfo(tmp_path, monkeypatch):
    file = tmp_path / "meminfo"
    monkeypatch.setattr(pressure, "_MEMINFO", file)
    return file


@pytest.mark.parametrize(
    ("told", "free"),
    [
        ("MemTotal: 9 kB\nMemAvailable:    3145728 kB\n", 3072),
        ("MemTotal: 9 kB\n", None),
        ("MemAvailable: lots\n", None),
        ("MemAvailable:\n", None),
    ],
)
def test_available_memory_is_read_where_the_system_tells_it(meminfo, told, free):
    meminfo.write_text(told)
    assert pressure.available_mem_mb() == free


def test_no_memory_is_known_on_other_systems(meminfo):
    assert pressure.available_mem_mb() is None


def test_a_turn_waits_below_the_floor_or_at_the_cap(meminfo, tmp_path):
    meminfo.write_text("MemAvailable: 2097152 kB\n")
    settings = make_settings(tmp_path, max_active_runs=3, min_start_available_mem_mb=2048)
    assert pressure.reason_to_wait(settings, 2) is None
    assert "3 turns are running" in pressure.reason_to_wait(settings, 3)
    meminfo.write_text("MemAvailable: 2096128 kB\n")
    assert "2047 MB" in pressure.reason_to_wait(settings, 0)
    meminfo.unlink()
    assert pressure.reason_to_wait(settings, 0) is None


def test_zero_switches_a_limit_off(meminfo, tmp_path):
    meminfo.write_text("MemAvailable: 1 kB\n")
    settings = make_settings(tmp_path, max_active_runs=0, min_start_available_mem_mb=0)
    assert pressure.reason_to_wait(settings, 10_000) is None


def write_capsule(folder, name, data=b"x" * 1000):
    writer = CapsuleWriter(
        folder / f"{name}.capsule",
        backend="cursor",
        version=None,
        argv=(),
        resume_id=None,
        max_bytes=10**6,
    )
    writer.stdout(data)
    writer.close(None, "")
    return writer.path


async def test_recordings_of_ended_runs_are_compressed_and_the_oldest_dropped(tmp_path):
    folder = tmp_path / "state" / "capsules"
    noise = [os.urandom(20_000) for _ in range(4)]
    paths = [write_capsule(folder, f"run_{n}", data) for n, data in enumerate(noise)]
    keeper = CapsuleKeeper(make_settings(tmp_path, capsules_total_bytes=50_000), lambda: {"run_3"})
    for n in range(3):
        capsules._tidy(folder, {f"run_{m}" for m in range(n + 1, 4)}, 10**9)
        os.utime(compressed_path(paths[n]), (n, n))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.keep)
        with trio.fail_after(20):
            while compressed_path(paths[0]).exists():
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert [path.exists() for path in paths] == [False, False, False, True]
    assert [compressed_path(path).exists() for path in paths] == [False, True, True, False]
    with open_capsule(paths[1]) as reader:
        assert b"".join(data for _, data in reader) == noise[1]


async def test_a_folder_that_cannot_be_tidied_is_tried_again_at_the_next_end(
    tmp_path, monkeypatch, autojump_clock
):
    tidied = []

    def fail(*args):
        tidied.append(args)
        raise OSError("no")

    async def inline(work, *args, limiter):
        await trio.lowlevel.checkpoint()
        return work(*args)

    monkeypatch.setattr(capsules, "_tidy", fail)
    monkeypatch.setattr(trio.to_thread, "run_sync", inline)
    keeper = CapsuleKeeper(make_settings(tmp_path), set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.keep)
        await trio.sleep(100)
        assert len(tidied) == 1
        keeper.wake()
        await trio.sleep(100)
        assert len(tidied) == 2
        nursery.cancel_scope.cancel()


async def test_a_run_is_recorded_under_its_id(tmp_path, autojump_clock):
    launcher = ScriptedLauncher(finishing(INIT, RESULT))
    async with living(tmp_path, launcher=launcher, capsule_bytes=10**6) as house:
        chat = await house.new()
        posted = await house.post(chat)
        await house.terminal(chat)
        path = capsule_path(house.settings.state_dir, posted["run_id"])
        with open_capsule(path) as reader:
            assert b"".join(data for _, data in reader) == INIT + RESULT
        assert (reader.header.backend, reader.header.version) == ("cursor", "1.2.3")


def test_a_server_keeps_its_identity_over_restarts_and_moves_with_its_folder(tmp_path):
    first, second = identify(tmp_path / "a"), identify(tmp_path / "a")
    assert first.server == second.server
    assert first.instance != second.instance
    assert len(first.server) == 24
    assert uuid.UUID(first.instance)
    assert identify(tmp_path / "b").server != first.server
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert identify(tmp_path / "link").server == first.server


def test_the_identity_does_not_need_a_machine_id(tmp_path, monkeypatch):
    from agentsdock.chats import dock

    blank = tmp_path / "blank"
    blank.write_text("\n")
    monkeypatch.setattr(dock, "MACHINE_ID_FILES", (str(tmp_path / "none"), str(blank)))
    assert identify(tmp_path).server == identify(tmp_path).server
    named = tmp_path / "named"
    named.write_text("0123\n")
    before = identify(tmp_path).server
    monkeypatch.setattr(dock, "MACHINE_ID_FILES", (str(blank), str(named)))
    assert identify(tmp_path).server != before
