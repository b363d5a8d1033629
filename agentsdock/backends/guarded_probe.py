"""Probe commands under a guard: like a turn, nothing that they start outlives them."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from agentsdock.backends.protocol import Completed
from agentsdock.guard.contract import SpawnFailed
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.guard.once import run_once

MAX_OUTPUT_BYTES = 8 * 1024 * 1024
"""Codex lists its models in a megabyte."""


@frozen
class GuardedProbe:
    """The ``RunProbe`` of the server; commands run in ``cwd``."""

    launcher: ZygoteLauncher
    cwd: str

    async def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float
    ) -> Completed:
        try:
            done = await run_once(
                self.launcher, tuple(argv), dict(env), self.cwd, timeout, MAX_OUTPUT_BYTES
            )
        except SpawnFailed as error:
            return Completed(None, "", str(error))
        return Completed(
            done.exit_code,
            done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace"),
            done.timed_out,
        )
