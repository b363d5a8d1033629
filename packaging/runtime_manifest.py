"""The runtime manifest: which files a release consists of, and what is in each.

All transports use it: the archive, the staging install, the direct deploy.  It is derived from
the commit of a checkout, and travels as the file ``MANIFEST`` (the format of ``sha256sum``) with
what has left a checkout.  The standard library alone is used here: it runs before anything is
installed.
"""

import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

FOLDERS = ("agentsdock", "packaging")
SINGLES = (
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "deploy.sh",
    "install.sh",
    "pyproject.toml",
    "requirements.lock",
    "uninstall.sh",
)
NAME = "MANIFEST"
VERSION_NAME = "VERSION"
LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")
GIT_SECONDS = 60


class SourceError(Exception):
    """A source that cannot be used; the message names the files and what to do."""


@dataclass(frozen=True)
class Release:
    """What a release is made of: digests by path, in hex, and its version."""

    version: str
    digests: Mapping[str, str]

    @property
    def text(self) -> str:
        return "".join(f"{self.digests[path]}  {path}\n" for path in sorted(self.digests))

    @property
    def id(self) -> str:
        """Names the content: two releases with one id are the same."""
        return f"{self.version}-{_digest(self.text.encode())[:12]}"


def release_of(root: pathlib.Path) -> Release:
    """What the tree at ``root`` should hold: by its MANIFEST, else by its commit.

    Raises SourceError.
    """
    if (root / NAME).is_file():
        return _read(root)
    return release_from(contents_of_commit(root))


def release_from(contents: Mapping[str, bytes]) -> Release:
    """Raises SourceError if the contents are no agentsdock."""
    try:
        source = contents["agentsdock/__init__.py"].decode()
    except (KeyError, UnicodeDecodeError):
        raise SourceError("agentsdock/__init__.py is missing") from None
    return Release(_version(source), {path: _digest(data) for path, data in contents.items()})


def contents_of_commit(root: pathlib.Path, commit: str = "HEAD") -> dict[str, bytes]:
    """The runtime files as they were committed.  Raises SourceError."""
    top = _git(root, "rev-parse", "--show-toplevel").decode().strip()
    if pathlib.Path(top).resolve() != root.resolve():
        raise SourceError(f"{root} has no {NAME} and is not a checkout of its own")
    paths = _git(root, "ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0")
    wanted = [path for path in paths if _is_runtime(path)]
    missing = [path for path in SINGLES if path not in wanted]
    if missing:
        raise SourceError(f"the commit lacks {', '.join(missing)}")
    packed = _git(root, "archive", "--format=tar", commit, "--", *wanted)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
        links = [member.name for member in members if not member.isreg()]
        if links:
            raise SourceError(f"not regular files: {', '.join(links)}")
        return {member.name: _content(archive, member) for member in members}


def commit_time(root: pathlib.Path, commit: str = "HEAD") -> int:
    """Seconds since the epoch.  Raises SourceError."""
    return int(_git(root, "log", "-1", "--format=%ct", commit))


def differences(root: pathlib.Path, release: Release) -> list[str]:
    """How a tree differs from what it should hold, each by its name; [] if it does not."""
    found = []
    there = _present(root)
    for path in sorted(there | set(release.digests)):
        place = root / path
        if path not in release.digests:
            found.append(f"extra file: {path}")
        elif path not in there:
            found.append(f"missing file: {path}")
        elif place.is_symlink() or not place.is_file():
            found.append(f"not a regular file: {path}")
        elif _digest(place.read_bytes()) != release.digests[path]:
            found.append(f"altered file: {path}")
    return found


def require(root: pathlib.Path, release: Release) -> None:
    """Raises SourceError for a tree that differs."""
    found = differences(root, release)
    if found:
        more = f"\n  and {len(found) - 20} more" if len(found) > 20 else ""
        listed = "".join(f"\n  {one}" for one in found[:20])
        raise SourceError(f"{root} is not release {release.version}:{listed}{more}")


def checked_contents(root: pathlib.Path) -> tuple[Release, dict[str, bytes]]:
    """A tree's release and its runtime files, none missing, extra or altered.

    Raises SourceError.
    """
    release = release_of(root)
    require(root, release)
    return release, {path: (root / path).read_bytes() for path in release.digests}


def pack(release: Release, contents: Mapping[str, bytes], when: int) -> bytes:
    """A tar with everything below one folder; the same arguments give the same bytes."""
    extra = {NAME: release.text.encode(), VERSION_NAME: f"{release.version}\n".encode()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted({**contents, **extra}.items()):
            member = tarfile.TarInfo(f"agentsdock-{release.version}/{path}")
            member.size, member.mtime = len(data), when
            member.mode = 0o755 if path.endswith(".sh") else 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def _read(root: pathlib.Path) -> Release:
    digests = {}
    for line in (root / NAME).read_text(encoding="utf-8").splitlines():
        match = LINE.fullmatch(line)
        if match is None or not _is_runtime(match[2]) or ".." in match[2].split("/"):
            raise SourceError(f"{root / NAME} has a line that is none of a manifest: {line!r}")
        digests[match[2]] = match[1]
    missing = [path for path in SINGLES if path not in digests]
    if missing:
        raise SourceError(f"{root / NAME} lacks {', '.join(missing)}")
    try:
        version = _version((root / "agentsdock/__init__.py").read_text(encoding="utf-8"))
    except OSError:
        raise SourceError("missing file: agentsdock/__init__.py") from None
    return Release(version, digests)


def _present(root: pathlib.Path) -> set[str]:
    """Paths of all runtime files on disk; what Python made of them does not count."""
    found = {path for path in SINGLES if os.path.lexists(root / path)}
    for top in FOLDERS:
        for folder, folders, names in os.walk(root / top):
            folders[:] = [name for name in folders if name != "__pycache__"]
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in names + links:
                found.add(pathlib.Path(folder, name).relative_to(root).as_posix())
    return found


def _is_runtime(path: str) -> bool:
    return path in SINGLES or (path.partition("/")[0] in FOLDERS and "/" in path)


def _version(source: str) -> str:
    match = re.search(r'^__version__ = "([0-9A-Za-z.+-]+)"$', source, re.MULTILINE)
    if match is None:
        raise SourceError("agentsdock/__init__.py names no version")
    return match[1]


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git(root: pathlib.Path, *words: str) -> bytes:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *words], check=True, capture_output=True, timeout=GIT_SECONDS
        ).stdout
    except FileNotFoundError:
        raise SourceError(f"{root} has no {NAME}, and git is not installed to ask") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise SourceError(f"{root} has no {NAME}, and git says: {said}") from None


def main() -> None:
    """``runtime_manifest.py ROOT``: the checked tree as a tar on stdout."""
    try:
        root = pathlib.Path(sys.argv[1])
        release, contents = checked_contents(root)
    except SourceError as error:
        sys.exit(f"agentsdock: {error}")
    sys.stdout.buffer.write(pack(release, contents, 0))


if __name__ == "__main__":
    main()
