"""What turns changed in git repositories: noted before, compared afterwards, kept for clients."""

import contextlib
import pathlib
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import trio
from attrs import define, field, frozen

from agentsdock.config import Settings
from agentsdock.diffs.git import GitFailed, NoDiff
from agentsdock.diffs.numstat import Change
from agentsdock.diffs.repository import Repository, find
from agentsdock.diffs.snapshot import Diff, Snapshot, take
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.logs import get_logger, where
from agentsdock.model.errors import NotFound
from agentsdock.model.times import iso_now
from agentsdock.store.protocol import SessionGone, Store

REST_SECONDS = 900.0
"""For how long a repository is left alone that took too long to note."""
MOST_RESTING = 256
MOST_LISTED = 1000
"""Files that an event lists of each kind; the counts are of all."""
RUN_ID = re.compile(r"[A-Za-z0-9._-]+")

log = get_logger()


@frozen
class _House:
    """What the turns of one server life share."""

    settings: Settings
    launcher: ZygoteLauncher
    folder: pathlib.Path
    _resting: dict[str, float] = field(factory=dict)
    """Roots that are left alone, each until a time."""

    def let_rest(self, repository: Repository) -> None:
        if len(self._resting) >= MOST_RESTING:
            del self._resting[next(iter(self._resting))]
        self._resting[repository.root] = trio.current_time() + REST_SECONDS

    def rests(self, repository: Repository) -> bool:
        return trio.current_time() < self._resting.get(repository.root, 0)


class Diffs:
    """Makes the differ of each run, and finds the patches that were kept."""

    def __init__(
        self, settings: Settings, store: Store, launcher: ZygoteLauncher, instance: str
    ) -> None:
        self._store = store
        self._snapshots = settings.state_dir / "snapshots"
        self._house = _House(settings, launcher, self._snapshots / instance)

    def of_run(self, run_id: str) -> "RunDiff":
        return RunDiff(self._house, run_id)

    async def patch(self, session_id: str, run_id: str) -> bytes:
        """The patch of a run as it is shown.  Raises NotFound."""
        if not RUN_ID.fullmatch(run_id):
            raise NotFound("diff not found")
        try:
            kept = await self._store.read_diff(session_id, run_id)
        except SessionGone:
            raise NotFound("session not found") from None
        if kept is None:
            raise NotFound("diff not found")
        return await trio.to_thread.run_sync(zlib.decompress, kept)

    async def sweep(self) -> None:
        """Remove what earlier lives left."""
        await trio.to_thread.run_sync(_remove_others, self._snapshots, self._house.folder)


@define(eq=False)
class RunDiff:
    """See :class:`agentsdock.chats.live.TurnDiffer`."""

    _house: _House
    _run_id: str
    missing: str | None = None
    patch: bytes | None = None
    _cwd: str = ""
    _snapshot: Snapshot | None = None

    async def before(self, folder: str) -> None:
        seconds = self._house.settings.code_diff_start_seconds
        if not seconds:
            return
        repository: Repository | None = None
        with self._contained(), trio.move_on_after(seconds) as scope:
            # A few look-ups, for which a thread would cost more than they do.
            repository = find(folder)
            if repository is not None:
                await self._note(repository, folder)
        if repository is not None and scope.cancelled_caught:
            self.missing = f"noting the state of the repository took over {seconds:g} seconds"
            log.warning("no diff: snapshot too slow", run=self._run_id, seconds=seconds)
            self._house.let_rest(repository)

    async def after(self, edited: Sequence[str]) -> dict[str, Any] | None:
        if self._snapshot is None:
            return None
        self.missing = "comparing the repository was not finished in time"
        with (
            self._contained(),
            trio.move_on_after(self._house.settings.code_diff_seconds),
        ):
            found = await self._snapshot.compare(edited, self._cwd)
            if found is not None:
                self.patch = await trio.to_thread.run_sync(zlib.compress, found.patch)
            self.missing = None
            return None if found is None else fields(found)
        return None

    async def close(self) -> None:
        if self._cwd:
            await trio.to_thread.run_sync(_remove, self._house.folder / self._run_id)

    async def _note(self, repository: Repository, folder: str) -> None:
        house = self._house
        if house.rests(repository):
            self.missing = "this repository took too long lately; it is tried again later"
            return
        self._cwd = folder
        self._snapshot = await take(
            house.launcher,
            repository,
            house.folder / self._run_id,
            house.settings.environ,
            house.settings.state_dir,
        )

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        """No failure here may fail the turn."""
        try:
            yield
        except NoDiff as error:
            self.missing = str(error)
            said = error.said if isinstance(error, GitFailed) else None
            log.warning("no diff", run=self._run_id, reason=str(error), git=said)
        except Exception as error:
            self.missing = "the server failed to compare the repository"
            log.error("no diff", run=self._run_id, error=where(error))


def fields(found: Diff) -> dict[str, Any]:
    """A ``code_diff`` event, but for the run's own fields."""
    counted = [change for change in found.changes if not change.binary]
    told: dict[str, Any] = {
        "repository_root": found.root,
        "diff_files": [_file(change) for change in found.changes[:MOST_LISTED]],
        "files_changed": len(found.changes),
        "additions": sum(change.additions or 0 for change in counted),
        "deletions": sum(change.deletions or 0 for change in counted),
        "byte_count": found.patch_bytes,
        "created_at": iso_now(),
        "attribution": "agent_tool_paths",
        "attributed_paths": list(found.attributed[:MOST_LISTED]),
    }
    if found.cut:
        told["truncated"] = True
    if found.left_out:
        left_out = [{"path": path, "reason": why} for path, why in found.left_out.items()]
        told["left_out"] = left_out[:MOST_LISTED]
    return told


def _file(change: Change) -> dict[str, Any]:
    renamed = {"old_path": change.old_path} if change.old_path is not None else {}
    return {
        "path": change.path,
        **renamed,
        "additions": change.additions,
        "deletions": change.deletions,
        "binary": change.binary,
    }


def _remove(folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _remove_others(snapshots: pathlib.Path, ours: pathlib.Path) -> None:
    for folder in snapshots.glob("*"):
        if folder != ours:
            _remove(folder)
