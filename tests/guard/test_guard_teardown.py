"""How a tree ends: on its own, when asked, when it resists, and when its guard is killed."""

import os
import signal
import subprocess

import pytest
import trio
from guard_helpers import Story, eventually, finish, gone, is_alive, python

from agentsdock.guard import handle
from agentsdock.guard.contract import Report
from agentsdock.guard.handle import ZygoteLauncher, ZygoteProcess
from agentsdock.guard.process_guard import children_of, start_ticks
from agentsdock.guard.sweep import sweep

pytestmark = pytest.mark.chaos

RESISTING = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for n in range(16):
    child(); daemon(ignore_term=True); daemon()
say('up')
forever()
"""


async def begun(
    launcher: ZygoteLauncher, program: str, **changes: object
) -> tuple[ZygoteProcess, Story]:
    process = await launcher.launch(python(program, **changes))
    story = Story(process)
    await story.until("up")
    return process, story


async def report_of(process: ZygoteProcess) -> Report:
    with trio.fail_after(10):
        return await process.wait_report()


async def test_what_a_finished_cli_leaves_is_ended_at_once(launcher: ZygoteLauncher) -> None:
    process, story = await begun(
        launcher, "child(); daemon(); daemon(ignore_term=True)\nsay('up'); sys.exit(5)", grace=60.0
    )
    report = await report_of(process)
    assert (report.exit_code, report.killed, report.processes_ended) == (5, False, 3)
    assert report.survivors == ()
    assert report.elapsed_ms < 1000
    assert len(story.processes) == 4
    assert story.survivors() == []
    assert await process.read_stdout(100) == b"", "nobody holds the pipe any more"
    await finish(process)


async def test_a_polite_cli_ends_by_its_stop_signal_and_its_daemons_with_it(
    launcher: ZygoteLauncher,
) -> None:
    program = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
daemon(ignore_term=True)
say('up')
forever()
"""
    process, story = await begun(launcher, program, grace=60.0)
    process.request_stop()
    report = await report_of(process)
    assert (report.exit_code, report.killed, report.processes_ended) == (9, True, 1)
    assert report.elapsed_ms < 1000, "the grace is the CLI's, not its daemons'"
    assert story.survivors() == []
    await finish(process)


async def test_a_tree_that_resists_is_gone_shortly_after_the_grace(
    launcher: ZygoteLauncher,
) -> None:
    process, story = await begun(launcher, RESISTING, grace=0.25)
    assert len(story.processes) == 49
    report = await process.end()
    assert (report.exit_code, report.killed, report.survivors) == (-signal.SIGKILL, True, ())
    assert 32 <= report.processes_ended <= 48, "sixteen may have gone by SIGTERM"
    assert 250 <= report.elapsed_ms < 1000
    assert story.survivors() == []
    await process.aclose()


async def test_stop_signals_come_in_order_spread_over_the_grace(launcher: ZygoteLauncher) -> None:
    program = """
for s in (signal.SIGINT, signal.SIGTERM):
    signal.signal(s, lambda n, _: say(signal.Signals(n).name, time.monotonic()))
say('up', time.monotonic())
while True: signal.pause()
"""
    process, story = await begun(launcher, program, grace=0.6, stop_signals=("SIGINT", "SIGTERM"))
    began = trio.current_time()
    process.request_stop()
    await story.until("SIGTERM")
    report = await report_of(process)
    first, second = (float(line.split()[1]) for line in story.lines[-2:])
    assert story.lines[-2].startswith("SIGINT")
    assert 0.25 < second - first < 0.5
    assert 0.55 < trio.current_time() - began < 1.5
    assert report.exit_code == -signal.SIGKILL
    await finish(process)


async def test_the_stop_signal_reaches_the_whole_tree_stopped_processes_too(
    launcher: ZygoteLauncher,
) -> None:
    program = """
def polite(name):
    def leave(*_):
        say('bye', name)
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        polite('grandchild')
        os.write(w, b'x')
        os.kill(os.getpid(), signal.SIGSTOP)
        forever()
    polite('child')
    os.write(w, b'x')
    forever()
os.read(r, 1); os.read(r, 1)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
say('up')
forever()
"""
    process, story = await begun(launcher, program, grace=0.4)
    process.request_stop()
    await story.until("bye")
    await story.until("bye")
    assert sorted(story.lines[-2:]) == ["bye child", "bye grandchild"]
    report = await report_of(process)
    assert report.processes_ended == 0
    await finish(process)


async def test_a_stopped_cli_is_killed_all_the_same(launcher: ZygoteLauncher) -> None:
    process, story = await begun(launcher, "child(); daemon(); say('up'); forever()")
    for pid, _ in story.processes:
        os.kill(pid, signal.SIGSTOP)
    report = await process.end()
    assert report.killed
    assert story.survivors() == []
    await process.aclose()


async def test_a_fork_storm_is_ended(launcher: ZygoteLauncher) -> None:
    program = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for n in range(6):
    if os.fork() == 0:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.0005)
        os._exit(0)
say('up')
forever()
"""
    process, _ = await begun(launcher, program, grace=0.1, marker="test:storm")
    report = await process.end()
    assert report.survivors == ()
    assert report.processes_ended >= 6
    await process.aclose()
    assert (await sweep([], marker_prefix="test:storm")).ended == ()


async def test_a_stop_in_the_instant_of_exit_is_never_an_error(launcher: ZygoteLauncher) -> None:
    seen = set()
    for turn in range(60):
        program = f"time.sleep({turn % 6 * 0.002}); os._exit(4)"
        process = await launcher.launch(python(program))
        await Story(process).until("process")
        process.request_stop()
        process.request_stop()
        report = await report_of(process)
        assert report.survivors == ()
        if not report.killed:
            assert report.exit_code == 4
        assert report.exit_code in (4, -signal.SIGTERM)
        seen.add(report.killed)
        assert await process.end() == report
        await process.aclose()
    assert True in seen


async def test_an_exit_that_came_before_the_stop_is_the_clis_own(launcher: ZygoteLauncher) -> None:
    process, _ = await begun(launcher, "say('up'); sys.stdin.read(); os._exit(4)")
    os.kill(process.guard_pid, signal.SIGSTOP)
    await eventually(lambda: not is_alive(process.pid, process.start_ticks))
    process.request_stop()
    os.kill(process.guard_pid, signal.SIGCONT)
    report = await report_of(process)
    assert (report.exit_code, report.killed) == (4, False)
    await finish(process)


async def test_a_stop_right_after_the_launch_ends_the_cli(launcher: ZygoteLauncher) -> None:
    process = await launcher.launch(python("forever()"))
    process.request_stop()
    report = await report_of(process)
    assert report.killed
    assert report.tree_empty
    await finish(process)


async def test_everybody_who_waits_gets_the_same_report(launcher: ZygoteLauncher) -> None:
    process, _ = await begun(launcher, "say('up'); forever()")
    reports = []

    async def wait() -> None:
        reports.append(await process.wait_report())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        with trio.move_on_after(0.01):
            await process.wait_report()
        reports.append(await process.end())
    assert len(reports) == 3
    assert reports[0] == reports[1] == reports[2]
    await process.aclose()


async def test_ending_runs_to_its_end_although_the_caller_is_cancelled(
    launcher: ZygoteLauncher,
) -> None:
    process, story = await begun(launcher, RESISTING, grace=0.1)
    with trio.CancelScope() as scope:
        scope.cancel()
        report = await process.end()
    assert report.killed
    assert report.survivors == ()
    assert story.survivors() == []
    await process.aclose()


async def test_closing_without_a_report_ends_the_tree_without_grace(
    launcher: ZygoteLauncher,
) -> None:
    process, story = await begun(launcher, RESISTING, grace=60.0)
    await process.aclose()
    assert not is_alive(process.guard_pid, process.guard_start)
    assert story.survivors() == []


async def test_what_outlives_the_guards_time_is_ended_by_the_server(
    launcher: ZygoteLauncher,
) -> None:
    process, story = await begun(launcher, RESISTING, grace=0.0, teardown_grace=0.0)
    report = await process.end()
    assert report.survivors == ()
    assert not report.guard_lost
    assert story.survivors() == []
    await process.aclose()


async def test_survivors_are_told_when_even_the_servers_time_is_over(
    launcher: ZygoteLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "CLEAR_SECONDS", 0.0)
    process, story = await begun(launcher, "child(); daemon()\nsay('up'); forever()")
    os.kill(process.guard_pid, signal.SIGKILL)
    report = await report_of(process)
    assert not report.tree_empty
    assert set(report.survivors) <= {pid for pid, _ in story.processes}
    await launcher.clear("", process.guard_start, seconds=2.0)
    assert story.survivors() == []
    await process.aclose()


@pytest.mark.parametrize("bare", [False, True], ids=["marked", "without environment"])
async def test_the_tree_of_a_killed_guard_is_cleared(launcher: ZygoteLauncher, bare: bool) -> None:
    program = f"""
child(); daemon(ignore_term=True, bare={bare}); daemon(bare={bare})
say('up'); forever()
"""
    process, story = await begun(launcher, program)
    os.kill(process.guard_pid, signal.SIGKILL)
    report = await report_of(process)
    assert report.guard_lost
    assert (report.exit_code, report.killed, report.survivors) == (None, False, ())
    assert report.processes_ended == 3
    assert story.survivors() == []
    await process.aclose()


async def test_a_cli_that_kills_its_guard_is_ended(launcher: ZygoteLauncher) -> None:
    process = await launcher.launch(
        python("daemon(ignore_term=True); os.kill(os.getppid(), signal.SIGKILL); forever()")
    )
    report = await report_of(process)
    assert report.guard_lost
    assert report.tree_empty
    assert not is_alive(process.pid, process.start_ticks)
    await process.aclose()


async def test_a_fork_storm_whose_guard_was_killed_is_ended(launcher: ZygoteLauncher) -> None:
    program = """
for n in range(3):
    if os.fork() == 0:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.0005)
        os._exit(0)
say('up')
forever()
"""
    process, _ = await begun(launcher, program, marker="test:lost-storm")
    os.kill(process.guard_pid, signal.SIGKILL)
    report = await report_of(process)
    assert report.guard_lost
    assert report.survivors == ()
    await process.aclose()
    assert (await sweep([], marker_prefix="test:lost-storm")).ended == ()


async def test_a_guard_that_is_stopped_is_replaced_within_the_bound(
    launcher: ZygoteLauncher,
) -> None:
    process, story = await begun(
        launcher, "child(); daemon()\nsay('up'); forever()", grace=0.1, teardown_grace=0.1
    )
    os.kill(process.guard_pid, signal.SIGSTOP)
    began = trio.current_time()
    report = await process.end()
    assert trio.current_time() - began < 1.2
    assert report.guard_lost
    assert report.killed
    assert report.survivors == ()
    assert story.survivors() == []
    await process.aclose()


async def test_a_lost_guard_costs_no_other_turn_and_no_child_of_our_session(
    launcher: ZygoteLauncher,
) -> None:
    first, first_story = await begun(launcher, "daemon(); say('up'); forever()", marker="t:1")
    other, other_story = await begun(
        launcher, "daemon(ignore_term=True); say('up'); forever()", marker="t:2"
    )
    second, _ = await begun(launcher, "daemon(); say('up'); forever()", marker="t:3")
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        os.kill(first.guard_pid, signal.SIGKILL)
        os.kill(second.guard_pid, signal.SIGKILL)
        for lost in (first, second):
            assert (await report_of(lost)).tree_empty
            await lost.aclose()
        assert first_story.survivors() == []
        assert len(other_story.survivors()) == 2
        assert (await other.end()).processes_ended == 1
        await other.aclose()
        assert stranger.poll() is None
        stranger.kill()


async def test_a_lost_guard_costs_no_child_that_was_there_before_it(
    launcher: ZygoteLauncher,
) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as stranger:
        for _ in range(2):  # guards that were forked ahead, maybe before the stranger
            process, _ = await begun(launcher, "say('up'); forever()")
            await finish(process)
        process, _ = await begun(launcher, "daemon(); say('up'); forever()")
        os.kill(process.guard_pid, signal.SIGKILL)
        assert (await report_of(process)).tree_empty
        await process.aclose()
        assert stranger.poll() is None
        stranger.kill()


async def test_a_lost_guard_costs_no_guard_that_lost_its_zygote(launcher: ZygoteLauncher) -> None:
    lost, _ = await begun(launcher, "daemon(); say('up'); forever()", marker="t:1")
    other, story = await begun(launcher, "daemon(); say('up'); forever()", marker="t:2")
    [zygote] = children_of(os.getpid())
    began = start_ticks(zygote)
    os.kill(zygote, signal.SIGKILL)
    assert await gone(zygote, began)
    os.kill(lost.guard_pid, signal.SIGKILL)
    assert (await report_of(lost)).tree_empty
    assert len(story.survivors()) == 2
    report = await other.end()
    assert (report.guard_lost, report.survivors) == (False, ())
    for process in (lost, other):
        await process.aclose()


async def test_two_hundred_turns_leave_everything_flat(launcher: ZygoteLauncher) -> None:
    async def turn(n: int) -> None:
        process, _ = await begun(launcher, f"daemon()\nsay('up'); sys.exit({n % 3})")
        assert (await report_of(process)).exit_code == n % 3
        await finish(process)

    await turn(0)
    before = sorted(os.listdir("/proc/self/fd"))
    children = children_of(os.getpid())
    for n in range(200):
        await turn(n)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert children_of(os.getpid()) == children
    [zygote] = children
    await eventually(lambda: len(children_of(zygote)) == 1)


async def test_fifty_turns_at_once_all_end(launcher: ZygoteLauncher) -> None:
    async def turn(n: int) -> None:
        process, story = await begun(launcher, "daemon(); child(); say('up'); forever()")
        report = await process.end()
        assert report.tree_empty
        assert story.survivors() == []
        await process.aclose()

    async with trio.open_nursery() as nursery:
        for n in range(50):
            nursery.start_soon(turn, n)
