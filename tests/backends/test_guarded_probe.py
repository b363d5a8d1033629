"""The Cursor CLI probed by the server's own means: real programs under the real guard."""

import os

import pytest
import trio
from scripted_cli import HEALTHY, client, playing, put

from agentsdock import config
from agentsdock.backends.guarded_probe import GuardedProbe
from agentsdock.backends.probing import Runtimes
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.model.errors import Unavailable


@pytest.fixture
async def probe(tmp_path):
    async with ZygoteLauncher() as launcher:
        yield GuardedProbe(launcher, str(tmp_path))


async def run(probe, program, *arguments, timeout=20):
    return await probe((str(program), *arguments), env={"PATH": "/usr/bin:/bin"}, timeout=timeout)


async def test_a_ready_cli_is_found_and_admitted(probe, environ, bin_dir, tmp_path):
    program = put(bin_dir, "agent", playing(HEALTHY, tmp_path / "answers"))
    runtimes = Runtimes(config.load(environ), {"cursor": client(environ)}, probe)
    admitted = await runtimes.admit("cursor")
    assert admitted.executable == str(program.resolve())
    entry = (await runtimes.catalog())["backends"]["cursor"]
    assert entry["model_source"] == "agent --list-models"
    assert len(entry["models"]) == 5


async def test_a_file_that_cannot_start_is_an_error_without_its_path(probe, environ, bin_dir):
    put(bin_dir, "agent", "#!/nowhere/at/all\n")
    runtimes = Runtimes(config.load(environ), {"cursor": client(environ)}, probe)
    with pytest.raises(Unavailable) as refused:
        await runtimes.admit("cursor")
    assert refused.value.detail()["status"] == "error"
    assert str(bin_dir) not in repr(refused.value.detail())


async def test_a_probe_gets_an_empty_stdin(probe, tmp_path):
    reader = put(tmp_path, "reader", "#!/bin/sh\ncat\necho end\n")
    assert (await run(probe, reader)).stdout == "end\n"


async def test_a_daemon_that_holds_the_pipe_does_not_hold_the_probe(probe, tmp_path):
    daemon = put(tmp_path, "daemon", "#!/bin/sh\necho done\nsetsid sleep 600 &\necho $! >&2\n")
    with trio.fail_after(10):
        answer = await run(probe, daemon)
    assert (answer.exit_code, answer.stdout) == (0, "done\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(answer.stderr), 0)


async def test_a_probe_that_does_not_end_is_ended_with_all_it_started(probe, tmp_path):
    hanging = put(tmp_path, "hanging", "#!/bin/sh\nsetsid sleep 600 &\necho $!\nsleep 600\n")
    answer = await run(probe, hanging, timeout=0.5)
    assert (answer.exit_code, answer.timed_out) == (None, True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(answer.stdout), 0)


async def test_a_cancelled_probe_leaves_no_process(probe, tmp_path):
    told = tmp_path / "told"
    os.mkfifo(told)
    hanging = put(tmp_path, "hanging", f"#!/bin/sh\necho $$ > '{told}'\nexec sleep 600\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, probe, hanging)
        pid = int(await trio.to_thread.run_sync(told.read_text))
        nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
