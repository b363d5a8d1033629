"""A git folder of our own beside a user's: their objects and index, none of their programs.

What a repository's configuration could run (filters, hooks, the file system monitor, text
converters, fetches of missing objects) is defined nowhere here, so git cannot run it.
"""

import os
import pathlib
import re
import shutil
from collections.abc import Mapping

from attrs import frozen

from agentsdock.diffs.repository import Repository

INDEX = "index"
_MOST_BYTES = 1024 * 1024

_SWITCHES = frozenset(
    {
        "core.autocrlf",
        "core.checkstat",
        "core.eol",
        "core.filemode",
        "core.ignorecase",
        "core.precomposeunicode",
        "core.sparsecheckout",
        "core.symlinks",
        "core.trustctime",
        "extensions.objectformat",
    }
)
"""Settings that decide what a file's content and mode are to git; none of them names a program."""
_FILES = {"core.excludesfile": "ignore", "core.attributesfile": "attributes"}
_SPECIAL = re.compile(rb"[\\*?\[\]!# ]")
_FILTER = re.compile(r"filter\.(.+)\.(?:clean|process)", re.DOTALL)
_FIXED = {
    "core.bare": "false",
    "core.loosecompression": "0",
    "core.protecthfs": "false",
    "core.protectntfs": "false",
    "core.quotepath": "false",
    "core.safecrlf": "false",
    "gc.auto": "0",
}


@frozen
class Configuration:
    """What we take over of a user's configuration, by lower-case key.

    ``filters`` are the drivers that are defined there: files under one are not what git stores.
    """

    taken: Mapping[str, str]
    filters: frozenset[str]


def read_configuration(listing: bytes, environ: Mapping[str, str]) -> Configuration:
    """From the answer to ``git config --list -z``; the last value of a key counts."""
    taken: dict[str, str] = {}
    filters: set[str] = set()
    for entry in os.fsdecode(listing).split("\0"):
        key, has_value, value = entry.partition("\n")
        if driver := _FILTER.fullmatch(key):
            filters.add(driver[1])
        elif key in _SWITCHES:
            taken[key] = value if has_value else "true"
        elif key in _FILES:
            taken[key] = _expanded(value, environ)
    for key, name in _FILES.items():
        file = taken.pop(key, None) or _default_file(name, environ)
        if os.path.isfile(file):
            taken[key] = file
    return Configuration(taken, frozenset(filters))


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


def _expanded(path: str, environ: Mapping[str, str]) -> str:
    return os.path.join(_home(environ), path[2:]) if path.startswith("~/") else path


def _default_file(name: str, environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(_home(environ), ".config")
    return os.path.join(base, "git", name)


def make(
    folder: pathlib.Path,
    repository: Repository,
    configuration: Configuration,
    hidden: pathlib.Path,
) -> None:
    """Build the folder, which must not exist.  Git ignores ``hidden``, should it be in the tree.

    Blocks.  Raises OSError.
    """
    common = pathlib.Path(repository.common_dir)
    for part in ("objects/info", "refs", "info"):
        (folder / part).mkdir(0o700, parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    objects = _quoted(os.fsencode(common / "objects"))
    (folder / "objects/info/alternates").write_bytes(objects + b"\n")
    (folder / "config").write_bytes(os.fsencode(_written(configuration)))
    for name in ("exclude", "attributes"):
        _copy_small(common / "info" / name, folder / "info" / name)
    with (folder / "info/exclude").open("ab") as exclude:
        exclude.write(_pattern(repository.root, hidden))
    git_dir = pathlib.Path(repository.git_dir)
    copy_index(git_dir / INDEX, folder / INDEX)
    for shared in git_dir.glob("sharedindex.*"):
        copy_index(shared, folder / shared.name)


def copy_index(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy with its time, by which git knows the entries that it must not trust.

    One that does not exist is an empty one.
    """
    if not source.is_file():
        target.unlink(missing_ok=True)
        return
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written)
        times = os.fstat(read.fileno())
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def _copy_small(source: pathlib.Path, target: pathlib.Path) -> None:
    if source.is_file() and source.stat().st_size <= _MOST_BYTES:
        shutil.copyfile(source, target)


def _pattern(root: str, hidden: pathlib.Path) -> bytes:
    """The line of an ignore file that means this folder, if it lies below the root."""
    real = os.path.realpath(hidden)
    below = os.path.relpath(real, root)
    if below.startswith("..") or "\n" in below:
        return b""
    return b"\n/" + _SPECIAL.sub(rb"\\\g<0>", os.fsencode(below)) + b"/\n"


def _written(configuration: Configuration) -> str:
    settings = {**configuration.taken, **_FIXED}
    version = 1 if "extensions.objectformat" in settings else 0
    lines = [f"[core]\n\trepositoryformatversion = {version}\n"]
    for key, value in settings.items():
        section, name = key.split(".")
        escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        lines.append(f'[{section}]\n\t{name} = "{escaped}"\n')
    return "".join(lines)


def _quoted(path: bytes) -> bytes:
    """A path as one line that git reads back."""
    escaped = path.replace(b"\\", rb"\\").replace(b'"', rb"\"").replace(b"\n", rb"\n")
    return b'"' + escaped + b'"'
