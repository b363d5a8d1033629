"""Names of files: for people, for the disk, and for HTTP headers.  Pure."""

import pathlib
import re
import unicodedata
import urllib.parse

MAX_NAME_BYTES = 200
MAX_EXTENSION_BYTES = 24
FALLBACK = "file"
_UNSEEN = re.compile("[\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Marks that show nothing by themselves."""

_TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "m4v": "video/x-m4v",
    "markdown": "text/markdown",
    "md": "text/markdown",
    "mov": "video/quicktime",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "txt": "text/plain",
    "webm": "video/webm",
}
_SHOWN_BY_A_BROWSER = frozenset(
    {
        "application/pdf",
        "image/avif",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/plain",
    }
)
UNKNOWN_TYPE = "application/octet-stream"


def clean_name(given: str | None) -> str:
    """A name without folders, control or direction marks, of at most MAX_NAME_BYTES in UTF-8.

    Letters and digits of any script with their marks, ``- _ .`` and spaces stay, the rest
    becomes ``_``; a long name keeps its extension.  Spellings that look the same are the same.
    """
    text = (given or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = unicodedata.normalize("NFC", text).replace("\\", "/").rpartition("/")[2]
    kept = "".join(c if _stays(c) else "_" for c in text).strip(" .")
    if not kept.strip("_"):
        return FALLBACK
    stem, dot, extension = kept.rpartition(".")
    if not dot or not stem or len(extension.encode()) > MAX_EXTENSION_BYTES:
        return _cut(kept, MAX_NAME_BYTES)
    room = MAX_NAME_BYTES - len(extension.encode()) - 1
    return f"{_cut(stem, room).rstrip(' .') or FALLBACK}.{extension}"


def _stays(char: str) -> bool:
    is_mark = unicodedata.category(char).startswith("M") and not _UNSEEN.match(char)
    return char.isalnum() or is_mark or char in "-_. "


def _cut(text: str, limit: int) -> str:
    return text.encode()[:limit].decode("utf-8", "ignore")


def content_type_of(name: str, declared: str | None) -> str:
    """What was declared, unless that says nothing; then by the extension."""
    kind = (declared or "").partition(";")[0].strip().lower()
    is_plain = len(kind) <= 127 and all(c.isascii() and (c.isalnum() or c in "/.+-_") for c in kind)
    if kind.count("/") == 1 and is_plain and kind != UNKNOWN_TYPE:
        return kind
    return _TYPES.get(pathlib.PurePosixPath(name).suffix[1:].lower(), UNKNOWN_TYPE)


def is_harmless(content_type: str) -> bool:
    """Whether a browser shows it without running anything of it."""
    return content_type in _SHOWN_BY_A_BROWSER or content_type.startswith(("audio/", "video/"))


def disposition(name: str, content_type: str) -> str:
    """The header's value: in place for what is harmless, else a download."""
    kind = "inline" if is_harmless(content_type) else "attachment"
    plain = "".join(c if c.isascii() else "_" for c in name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{urllib.parse.quote(name, safe='')}"
