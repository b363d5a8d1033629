"""A work tree at one moment, and what certain files have become since.

The moment is an index in a git folder of our own.  It begins as a copy of the user's index, so
unchanged files cost one look each and only changed and untracked ones are read.
"""

import os
import pathlib
import shutil
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from agentsdock.diffs import git, shadow
from agentsdock.diffs.git import Git, NoDiff
from agentsdock.diffs.numstat import Change, read_changes
from agentsdock.diffs.paths import Why, edited, worth_keeping
from agentsdock.diffs.repository import Repository
from agentsdock.diffs.threads import in_thread
from agentsdock.guard.handle import ZygoteLauncher

LISTING_BYTES = 8 * 1024 * 1024
PATCH_BYTES = 4 * 1024 * 1024
"""What is kept of a patch."""
PATHS_AT_ONCE = 500
"""As arguments of one command."""
_AFTER = "index.after"
_UPDATE = (
    "update-index",
    "--add",
    "--remove",
    "--replace",
    "--ignore-skip-worktree-entries",
    "-z",
    "--stdin",
)
_DIFF = ("diff-index", "--cached", "-M", "--no-ext-diff", "--no-textconv")


@frozen
class Diff:
    """What the edited files of a repository have become.

    ``patch`` is cut at PATCH_BYTES, ``patch_bytes`` its true size.  ``attributed`` are the files
    that were compared, ``left_out`` those that could not be; paths are relative to ``root``,
    where they lie below it.
    """

    root: str
    changes: tuple[Change, ...]
    patch: bytes
    patch_bytes: int
    attributed: tuple[str, ...]
    left_out: Mapping[str, Why]

    @property
    def cut(self) -> bool:
        return self.patch_bytes > PATCH_BYTES


@frozen
class Snapshot:
    """Made by :func:`take`; needs its folder."""

    repository: Repository
    folder: pathlib.Path
    _git: Git
    _unknown: dict[bytes, Why]
    _filters: frozenset[str]

    async def compare(self, told: Iterable[str], folder: str) -> Diff | None:
        """What became of the files that were ``told``, relative to ``folder``.

        None if nothing did.  Raises NoDiff.
        """
        root = os.fsencode(self.repository.root)
        chosen = await in_thread(edited, root, folder, tuple(told), self._unknown)
        left_out = chosen.left_out | await self._unsuitable(chosen.taken)
        paths = [path for path in chosen.taken if path not in left_out]
        if not paths:
            return None
        before = await self._git.run("write-tree", "--missing-ok")
        tree = before.stdout.decode("ascii").strip()
        await self._advance(paths)
        changes = await self._changes(tree)
        if not changes:
            return None
        patch, size = await self._patch(tree)
        return Diff(
            root=_shown(root),
            changes=changes,
            patch=patch,
            patch_bytes=size,
            attributed=tuple(map(_shown, paths)),
            left_out={_shown(path): why for path, why in left_out.items()},
        )

    async def _unsuitable(self, paths: Sequence[bytes]) -> dict[bytes, Why]:
        """Files that git does not track, or not as they are."""
        found = dict.fromkeys(await self._ignored(paths), Why.IGNORED)
        found |= dict.fromkeys(await self._unwatched(paths), Why.ASSUMED)
        if self._filters:
            found |= dict.fromkeys(await self._filtered(paths), Why.FILTERED)
        return found

    async def _ignored(self, paths: Sequence[bytes]) -> list[bytes]:
        # Bare names would be read as patterns.
        stdin = _terminated([b"./" + path for path in paths])
        if not stdin:
            return []
        done = await self._git.run(
            "check-ignore",
            "-z",
            "--stdin",
            stdin=stdin,
            max_output=len(stdin),
            statuses=(0, 1),
        )
        return [path.removeprefix(b"./") for path in _split(done.stdout)]

    async def _unwatched(self, paths: Sequence[bytes]) -> list[bytes]:
        """Those that the user told git to take as unchanged, so that their state is not known."""
        found: list[bytes] = []
        for at in range(0, len(paths), PATHS_AT_ONCE):
            named = map(os.fsdecode, paths[at : at + PATHS_AT_ONCE])
            done = await self._git.run(
                *("ls-files", "-v", "-z", "--", *named),
                max_output=LISTING_BYTES,
                GIT_LITERAL_PATHSPECS="1",
            )
            # A tag of one letter, in lower case for these, and a blank.
            found += [entry[2:] for entry in _split(done.stdout) if entry[:1].islower()]
        return found

    async def _filtered(self, paths: Sequence[bytes]) -> list[bytes]:
        """Those whose stored form only a program of the user's could make."""
        done = await self._git.run(
            "check-attr",
            "-z",
            "--stdin",
            "filter",
            stdin=_terminated(paths),
            max_output=LISTING_BYTES,
        )
        fields = _split(done.stdout)
        told = zip(fields[::3], fields[2::3], strict=False)
        return [path for path, driver in told if os.fsdecode(driver) in self._filters]

    async def _advance(self, paths: Sequence[bytes]) -> None:
        """A second index, in which these files are as they are now."""
        before, after = self.folder / shadow.INDEX, self.folder / _AFTER
        await in_thread(shadow.copy_index, before, after)
        await self._git.run(*_UPDATE, stdin=_terminated(paths), GIT_INDEX_FILE=str(after))

    async def _changes(self, tree: str) -> tuple[Change, ...]:
        done = await self._diff("--numstat", "-z", tree, max_output=LISTING_BYTES)
        return read_changes(done[0])

    async def _patch(self, tree: str) -> tuple[bytes, int]:
        patch, size = await self._diff("--patch", tree, max_output=PATCH_BYTES)
        if size <= len(patch):
            return patch, size
        whole_lines = patch[: patch.rfind(b"\n") + 1]
        mark = b"[trimmed: the start of a patch of %d bytes]\n" % size
        return whole_lines + mark, size

    async def _diff(self, *arguments: str, max_output: int) -> tuple[bytes, int]:
        after = str(self.folder / _AFTER)
        done = await self._git.run(*_DIFF, *arguments, max_output=max_output, GIT_INDEX_FILE=after)
        return done.stdout, done.stdout_bytes


async def take(
    launcher: ZygoteLauncher,
    repository: Repository,
    folder: pathlib.Path,
    environ: Mapping[str, str],
    hidden: pathlib.Path,
) -> Snapshot:
    """Note the state of the work tree in ``folder``, which is made.

    ``hidden`` is a folder of the server's, which is no part of anybody's work.  Raises NoDiff;
    ``folder`` may then exist and is the caller's to remove.
    """
    program = await in_thread(shutil.which, "git", os.X_OK, environ.get("PATH"))
    if program is None:
        raise NoDiff("git is not installed on this server")
    if repository.foreign:
        await _require_trust(launcher, program, repository, environ)
    theirs = Git(launcher, program, git.reading(environ, repository.git_dir), repository.root)
    listing = await theirs.run("config", "--list", "-z")
    configuration = shadow.read_configuration(listing.stdout, environ)
    try:
        await in_thread(shadow.make, folder, repository, configuration, hidden)
        free = await in_thread(_free_bytes, folder)
    except OSError as error:
        raise NoDiff(f"the state of the repository could not be kept: {error.strerror}") from error
    env = git.private(environ, str(folder), repository.root)
    ours = Git(launcher, program, env, repository.root)
    unknown = await _bring_up_to_date(ours, free)
    return Snapshot(repository, folder, ours, unknown, configuration.filters)


async def _require_trust(
    launcher: ZygoteLauncher, program: str, repository: Repository, environ: Mapping[str, str]
) -> None:
    """Whether the user has told git to use another user's repository."""
    asking = Git(launcher, program, git.reading(environ, None), repository.root)
    try:
        await asking.run("rev-parse", "--git-dir")
    except git.GitFailed as error:
        raise NoDiff(
            "this repository belongs to another user, and git's safe.directory does not name it"
        ) from error


async def _bring_up_to_date(ours: Git, free_bytes: int) -> dict[bytes, Why]:
    """Put what differs from the index into it; what had to be left out."""
    listed = await ours.run(
        "ls-files",
        "-z",
        "--modified",
        "--deleted",
        "--others",
        "--exclude-standard",
        max_output=LISTING_BYTES,
    )
    if listed.stdout_bytes > LISTING_BYTES:
        raise NoDiff("too many changed and untracked files in this repository")
    root = os.fsencode(ours.folder)
    names = dict.fromkeys(_split(listed.stdout))
    found = await in_thread(worth_keeping, root, names, free_bytes)
    if found.taken:
        await ours.run(*_UPDATE, stdin=_terminated(found.taken))
    return found.left_out


def _free_bytes(folder: pathlib.Path) -> int:
    """What may be taken of the free space: the turn needs some too."""
    return shutil.disk_usage(folder).free // 4


def _terminated(paths: Sequence[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


def _split(listing: bytes) -> list[bytes]:
    return listing.split(b"\0")[:-1]


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")
