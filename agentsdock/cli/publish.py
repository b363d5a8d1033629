"""``agentsdock-publish``: hands files of a running turn to its chat.

For agents: the prompt of a turn names the authority file.  Standard library only.
"""

import argparse
import hashlib
import http.client
import ipaddress
import json
import os
import stat
import sys
import urllib.parse
from typing import Any, NoReturn

MAX_AUTHORITY_BYTES = 64 * 1024
MAX_MANIFEST_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 4 * 1024 * 1024
TIMEOUT_SECONDS = 300


def main() -> int:
    """Prints the receipts as JSON; 0 once all files are in the chat, else 1 with the reason."""
    options = _options()
    authority = _authority(options.authority_file)
    chat = options.chat_id or authority["source_session_id"]
    entries = [{"path": os.path.abspath(path)} for path in options.files]
    entries += [_entry(text) for text in options.entry_json]
    if options.manifest is not None:
        entries += _listed(options.manifest)
    if not entries:
        _fail("name at least one file")
    publication = options.publication_id or _publication_id(authority, entries)
    body = {"publication_id": publication, "files": entries}
    answer = _post(f"/api/agent/sessions/{chat}/artifacts", body, authority["provider_capability"])
    if len(answer.get("receipts", ())) != len(entries) or answer.get("chat_id") != chat:
        _fail("the server's receipt is not for what was sent")
    print(json.dumps(answer))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agentsdock-publish", description=__doc__)
    parser.add_argument("--authority-file", required=True, metavar="PATH")
    parser.add_argument("--chat-id", metavar="ID")
    parser.add_argument("--publication-id", metavar="ID", help="to repeat a publication safely")
    parser.add_argument("--entry-json", action="append", default=[], metavar="JSON")
    parser.add_argument("--manifest", metavar="PATH", help='also those of a {"files": [...]}')
    parser.add_argument("files", nargs="*", metavar="FILE")
    return parser.parse_args()


def _entry(text: str) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except ValueError as error:
        _fail(f"--entry-json is no JSON: {error}")
    if not isinstance(entry, dict):
        _fail("--entry-json must be an object")
    return entry


def _listed(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            files = json.loads(file.read(MAX_MANIFEST_BYTES))["files"]
        return [{"path": one} if isinstance(one, str) else dict(one) for one in files]
    except OSError as error:
        _fail(f"the manifest cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        _fail('the manifest must be {"files": [...]}, of paths or objects')


def _publication_id(authority: dict[str, Any], entries: list[dict[str, Any]]) -> str:
    """The same for the same files with the same content in the same turn."""
    digest = hashlib.sha256(
        json.dumps([authority["source_run_id"], entries], sort_keys=True).encode()
    )
    for entry in entries:
        try:
            with open(os.open(str(entry.get("path")), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                while piece := file.read(1024 * 1024):
                    digest.update(piece)
        except OSError:
            pass  # The server says what is wrong with it.
    return digest.hexdigest()[:32]


def _authority(path: str) -> dict[str, Any]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        _fail(f"the authority file cannot be read: {error.strerror}")
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            _fail("the authority file can be read by others")
        try:
            authority = json.loads(file.read(MAX_AUTHORITY_BYTES))
            return {
                name: str(authority[name])
                for name in ("source_session_id", "source_run_id", "provider_capability")
            }
        except (ValueError, KeyError, TypeError):
            _fail("the authority file holds no authority")


def _post(path: str, body: dict[str, Any], secret: str) -> dict[str, Any]:
    """Straight to the loopback: proxies are not used and redirects not followed."""
    url = urllib.parse.urlsplit(os.environ.get("AGENTSDOCK_SERVER_URL", ""))
    if url.scheme != "http" or not url.hostname or not _is_loopback(url.hostname):
        _fail("AGENTSDOCK_SERVER_URL is not an address of this machine")
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=TIMEOUT_SECONDS)
    headers = {
        "Content-Type": "application/json",
        "X-AgentsDock-Provider-Capability": secret,
    }
    try:
        connection.request("POST", path, json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        data = json.loads(answer.read(MAX_ANSWER_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        _fail(f"the server did not answer: {error}")
    finally:
        connection.close()
    if answer.status != 200 or not isinstance(data, dict):
        _fail(f"refused ({answer.status}): {json.dumps(data)}")
    return data


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _fail(reason: str) -> NoReturn:
    print(f"agentsdock-publish: {reason}", file=sys.stderr)
    raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
