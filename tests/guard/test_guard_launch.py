"""What the CLI gets, what it does not get, and launches that fail."""

import errno
import hashlib
import os
import signal
from pathlib import Path

import pytest
import trio
from guard_helpers import ENV, Story, eventually, finish, open_descriptors, python, spec

from agentsdock.guard.contract import SpawnFailed
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.guard.once import run_once


async def output(launcher: ZygoteLauncher, program: str, **changes: object) -> list[str]:
    process = await launcher.launch(python(program + "\nsay('end')", **changes))
    story = Story(process)
    await story.until("end")
    assert (await process.wait_report()).exit_code == 0
    await finish(process)
    return story.lines[1:-1]


@pytest.mark.parametrize("code", [0, 3, 127, 255])
async def test_an_exit_code_is_reported_as_it_is(launcher: ZygoteLauncher, code: int) -> None:
    process = await launcher.launch(spec("/bin/sh", "-c", f"exit {code}"))
    report = await process.wait_report()
    assert (report.exit_code, report.killed, report.survivors) == (code, False, ())
    assert report.processes_ended == 0
    assert not report.guard_lost
    assert report.rung == launcher.rung == "subreaper"
    await finish(process)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGHUP"])
async def test_a_death_by_signal_stays_a_signal(launcher: ZygoteLauncher, name: str) -> None:
    process = await launcher.launch(spec("/bin/sh", "-c", f"kill -{name[3:]} $$"))
    report = await process.wait_report()
    assert report.exit_code == -signal.Signals[name]
    assert not report.killed
    await finish(process)


async def test_cpu_and_memory_of_the_whole_tree_are_accounted(launcher: ZygoteLauncher) -> None:
    program = """
if os.fork() == 0:
    block = bytearray(60_000_000)
    while time.process_time() < 0.15: pass
    os._exit(0)
os.wait()
say('end')
"""
    process = await launcher.launch(python(program))
    report = await process.wait_report()
    await finish(process)
    assert report.cpu_seconds is not None
    assert report.max_rss_bytes is not None
    assert 0.15 <= report.cpu_seconds < 5
    assert 60_000_000 < report.max_rss_bytes < 200_000_000


async def test_stdin_of_many_megabytes_arrives_whole_and_ends(launcher: ZygoteLauncher) -> None:
    data = os.urandom(30_000_000)
    process = await launcher.launch(spec("/usr/bin/sha256sum", stdin=data))
    with trio.fail_after(20):
        assert (await process.read_stdout(64)).decode() == hashlib.sha256(data).hexdigest()
    await finish(process)


async def test_without_stdin_the_cli_reads_an_end_at_once(launcher: ZygoteLauncher) -> None:
    done = await run_once(launcher, ("/usr/bin/wc", "-c"), ENV, "/", timeout=10)
    assert done.stdout.strip() == b"0"


async def test_the_environment_is_the_given_one_and_the_marker(launcher: ZygoteLauncher) -> None:
    env = {"A": "1", "B": "grüße\udcff"}
    [line] = await output(launcher, "say(sorted(os.environb.items()))", env=env, marker="me:42")
    found = dict(eval(line))
    found.pop(b"LC_CTYPE", None)  # the interpreter's own doing
    assert found == {
        b"A": b"1",
        b"B": "grüße".encode() + b"\xff",
        b"AGENTSDOCK_RUN_MARKER": b"me:42",
    }


async def test_arguments_that_are_not_utf8_pass_unchanged(launcher: ZygoteLauncher) -> None:
    done = await run_once(launcher, ("/bin/echo", "a\udcfe\nb"), ENV, "/", timeout=10)
    assert done.stdout == b"a\xfe\nb\n"


async def test_the_cli_leads_its_own_session_with_default_signals(
    launcher: ZygoteLauncher, tmp_path: Path
) -> None:
    program = """
say(os.getsid(0) == os.getpid() == os.getpgrp(), os.getcwd())
signal.signal(signal.SIGPIPE, signal.SIG_DFL); signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
say(*[l.split()[1] for l in open("/proc/self/status") if l[:6] in ("SigBlk", "SigIgn")])
say(sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1])
"""
    lines = await output(launcher, program, cwd=str(tmp_path))
    assert lines[0] == f"True {tmp_path}"
    inside_libc = 1 << 31 | 1 << 32  # glibc ignores its own two in all that it spawns
    assert [int(mask, 16) & ~inside_libc for mask in lines[1].split()] == [0, 0]
    assert lines[2] == "[0, 1, 2]"


async def test_sigpipe_kills_as_it_does_anywhere(launcher: ZygoteLauncher) -> None:
    done = await run_once(
        launcher, ("/bin/bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"), ENV, "/", 10
    )
    assert done.stdout == b"y\n141\n"


async def test_the_guard_keeps_no_pipe_of_the_turn_and_no_folder(
    launcher: ZygoteLauncher, tmp_path: Path
) -> None:
    process = await launcher.launch(python("say('up'); forever()", cwd=str(tmp_path)))
    await Story(process).until("up")
    held = {
        os.readlink(f"/proc/{process.guard_pid}/fd/{fd}")
        for fd in os.listdir(f"/proc/{process.guard_pid}/fd")
    }
    stdio = {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (1, 2)}
    assert os.readlink(f"/proc/{process.guard_pid}/cwd") == "/"
    assert not held & stdio
    own = {os.readlink(f"/proc/{process.guard_pid}/fd/{fd}") for fd in (0, 1, 2)}
    assert own == {os.devnull}
    await finish(process)


@pytest.mark.parametrize("background", [True, False])
async def test_the_cli_runs_behind_the_server_when_asked(
    launcher: ZygoteLauncher, background: bool
) -> None:
    process = await launcher.launch(python("say('up'); forever()", background=background))
    await Story(process).until("up")
    assert os.getpriority(os.PRIO_PROCESS, process.guard_pid) == 0
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == (10 if background else 0)
    group = Path(f"/proc/{process.pid}/autogroup")
    if group.exists():  # an ordinary user may change one in 100 ms, so the guard tries again
        wanted = "10" if background else "0"
        await eventually(lambda: group.read_text().split()[-1] == wanted)
    await finish(process)


async def test_the_largest_argument_and_a_large_environment_pass(launcher: ZygoteLauncher) -> None:
    env = {f"VARIABLE_{n}": "x" * 10_000 for n in range(100)}
    process = await launcher.launch(spec("/bin/echo", "y" * 131_071, env=env))
    report = await process.wait_report()
    assert report.exit_code == 0
    size = 0
    while data := await process.read_stdout(65536):
        size += len(data)
    assert size == 131_072
    await finish(process)


def refused(tmp_path: Path) -> dict[str, tuple[object, int]]:
    plain = tmp_path / "plain"
    plain.write_text("echo hello\n")
    bare = tmp_path / "bare"
    bare.write_text("echo hello\n")
    bare.chmod(0o755)
    folder = str(tmp_path)
    return {
        "argument too long": (spec("/bin/echo", "x" * 131_072), errno.E2BIG),
        "missing": (spec("/nonexistent/cli"), errno.ENOENT),
        "not executable": (spec(str(plain)), errno.EACCES),
        "no program": (spec(str(bare)), errno.ENOEXEC),
        "a folder": (spec(folder), errno.EACCES),
        "working folder gone": (spec("/bin/echo", cwd=f"{folder}/gone"), errno.ENOENT),
        "working folder a file": (spec("/bin/echo", cwd=str(plain)), errno.ENOTDIR),
        "lone surrogate": (spec("/bin/echo", "\ud800"), errno.EINVAL),
    }


async def test_each_failed_start_is_told_with_the_systems_reason(
    launcher: ZygoteLauncher, tmp_path: Path
) -> None:
    await run_once(launcher, ("/bin/true",), ENV, "/", timeout=10)
    before = open_descriptors()
    for what, (failing, number) in refused(tmp_path).items():
        with pytest.raises(SpawnFailed) as caught:
            await launcher.launch(failing)  # type: ignore[arg-type]
        assert caught.value.errno == number, what
        assert caught.value.too_long == (number == errno.E2BIG)
        assert str(tmp_path) not in str(caught.value)
    with pytest.raises(SpawnFailed, match="null"):
        await launcher.launch(spec("/bin/echo", "a\0b"))
    assert open_descriptors() == before
    assert (await run_once(launcher, ("/bin/echo", "ok"), ENV, "/", 10)).stdout == b"ok\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter any folder")
async def test_a_closed_folder_is_a_failed_start(launcher: ZygoteLauncher, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with pytest.raises(SpawnFailed) as caught:
        await launcher.launch(spec("/bin/echo", cwd=str(closed)))
    assert caught.value.errno == errno.EACCES


async def test_running_out_of_descriptors_fails_one_launch_and_leaks_none(
    launcher: ZygoteLauncher,
) -> None:
    import resource

    await run_once(launcher, ("/bin/true",), ENV, "/", timeout=10)
    before = open_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = None
    refusals = []
    while process is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + len(refusals), hard))
        try:
            process = await launcher.launch(spec("/bin/true"))
        except SpawnFailed as error:
            refusals.append(error.errno)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if process is None:
            assert open_descriptors() == before
    await finish(process)
    assert len(refusals) >= 5
    assert set(refusals) == {errno.EMFILE}


async def test_a_cancelled_launch_starts_nothing_or_returns_what_it_started(
    launcher: ZygoteLauncher,
) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await launcher.launch(spec("/bin/true"))
    assert scope.cancelled_caught
    with trio.CancelScope() as scope:

        async def cancel() -> None:
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            process = await launcher.launch(python("forever()"))
    report = await process.end()
    assert report.killed
    assert report.tree_empty
    await process.aclose()


async def test_run_once_gives_both_outputs_and_the_exit_code(launcher: ZygoteLauncher) -> None:
    argv = ("/bin/sh", "-c", "echo out; echo err >&2; exit 7")
    done = await run_once(launcher, argv, ENV, "/", timeout=10)
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert not done.timed_out


async def test_run_once_ends_the_tree_at_its_timeout(launcher: ZygoteLauncher) -> None:
    argv = ("/bin/sh", "-c", "trap '' TERM; echo begun; setsid sleep 600 & sleep 600")
    began = trio.current_time()
    done = await run_once(launcher, argv, ENV, "/", timeout=0.3)
    assert (done.exit_code, done.stdout, done.timed_out) == (None, b"begun\n", True)
    assert trio.current_time() - began < 2


async def test_run_once_keeps_no_more_than_its_bound(launcher: ZygoteLauncher) -> None:
    argv = ("/bin/sh", "-c", "head -c 5000000 /dev/zero; echo done >&2")
    done = await run_once(launcher, argv, ENV, "/", timeout=20, max_output=1000)
    assert (done.exit_code, len(done.stdout), done.stderr) == (0, 1000, b"done\n")


async def test_run_once_does_not_wait_for_a_daemon_that_holds_its_output(
    launcher: ZygoteLauncher,
) -> None:
    argv = ("/bin/sh", "-c", "setsid sleep 600 & echo version 1")
    done = await run_once(launcher, argv, ENV, "/", timeout=20)
    assert (done.exit_code, done.stdout, done.timed_out) == (0, b"version 1\n", False)
