"""Make a release: ``package_release.py --out DIR [--key PRIVATE_KEY.pem]``.

Writes ``agentsdock-VERSION.tar.gz``, its SHA-256, and with a key its Ed25519 signature
(``.sig``, 64 raw bytes).  The same commit gives the same bytes.  Nothing that differs from the
commit is packed.
"""

import argparse
import gzip
import hashlib
import os
import pathlib
import sys

from runtime_manifest import (
    SourceError,
    commit_time,
    contents_of_commit,
    pack,
    release_from,
    require,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the files")
    parser.add_argument("--key", type=pathlib.Path, help="Ed25519 private key, PEM")
    options = parser.parse_args()
    try:
        archive = build(ROOT, options.out, options.key)
    except (SourceError, OSError, ValueError) as error:
        sys.exit(f"package_release: {error}")
    print(archive)


def build(root: pathlib.Path, out: pathlib.Path, key: pathlib.Path | None) -> pathlib.Path:
    """Raises SourceError, OSError, and ValueError for what is no key."""
    contents = contents_of_commit(root)
    release = release_from(contents)
    require(root, release)
    data = gzip.compress(pack(release, contents, commit_time(root)), compresslevel=9, mtime=0)
    signature = sign(data, key) if key else None
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"agentsdock-{release.version}.tar.gz"
    digest = hashlib.sha256(data).hexdigest()
    _write(archive, data)
    _write(out / f"{archive.name}.sha256", f"{digest}  {archive.name}\n".encode())
    stale = out / f"{archive.name}.sig"
    stale.unlink(missing_ok=True)
    if signature:
        _write(stale, signature)
    return archive


def sign(data: bytes, key_file: pathlib.Path) -> bytes:
    """Raises OSError, SourceError and ValueError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(key_file.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise SourceError(f"{key_file} is no Ed25519 key")
    return key.sign(data)


def _write(path: pathlib.Path, data: bytes) -> None:
    """Whole or not at all."""
    scratch = path.with_name(path.name + ".partial")
    scratch.write_bytes(data)
    os.replace(scratch, path)


if __name__ == "__main__":
    main()
