"""Makes a running turn's events and delivery state durable."""

from collections.abc import Sequence

from attrs import evolve

from agentsdock.chats import bindings
from agentsdock.chats.chat import Chat
from agentsdock.chats.registry import Registry
from agentsdock.guard.contract import GuardedProcess
from agentsdock.logs import get_logger
from agentsdock.model.events import Draft
from agentsdock.model.turns import Run, RunState
from agentsdock.store.protocol import RunClosed, StoreError

log = get_logger()


class TurnRecorder:
    """The ``Recorder`` of one run.  An id that the CLI gives itself is kept with its event."""

    def __init__(self, registry: Registry, chat: Chat, run: Run) -> None:
        self._registry = registry
        self._chat = chat
        self.run = run

    async def record(self, drafts: Sequence[Draft]) -> None:
        named = [d.payload["provider_session_id"] for d in drafts if d.type == "provider_session"]
        if not named:
            await self._registry.write(self._chat, drafts)
            return
        await self._registry.change(
            self._chat,
            lambda session: bindings.initialised(session, self.run.backend, named[-1]),
            drafts,
        )

    async def handed_over(self, process: GuardedProcess) -> None:
        await self._renew(
            evolve(
                self.run,
                state=RunState.HANDED_OVER,
                guard_pid=process.guard_pid,
                guard_start=process.guard_start,
                cli_pid=process.pid,
                cli_start=process.start_ticks,
            )
        )

    async def acknowledged(self) -> None:
        await self._renew(evolve(self.run, state=RunState.ACKNOWLEDGED))

    async def _renew(self, run: Run) -> None:
        self.run = run
        try:
            await self._registry.store.renew(run)
        except RunClosed:
            pass  # the terminal event was faster
        except StoreError as error:
            # The events tell when the store is in trouble; the boot sweep has the run marker too.
            log.warning("delivery state not stored", run=run.id, error=str(error))
