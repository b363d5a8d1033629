"""Scripts, styles and pictures of the page: plain files under an address that names their state,
so that browsers keep them for good and never mix two releases."""

import functools
import hashlib
import pathlib

FOLDER = pathlib.Path(__file__).parent.parent / "static"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@functools.cache
def contents() -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in sorted(FOLDER.iterdir()) if file.suffix in TYPES
    }


@functools.cache
def version() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, body in contents().items():
        digest.update(b"%b\0%d\0" % (name.encode(), len(body)))
        digest.update(body)
    return digest.hexdigest()


def base() -> str:
    return f"/static/{version()}"
