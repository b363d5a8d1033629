"""``agentsdock-publish``: hands files of a running turn to its chat.

For agents: the prompt of a turn names the authority file.  Standard library only.
"""

import argparse
import hashlib
import json
import os
import sys
from typing import Any

from agentsdock.cli.agent_request import Authority, ask, fail, finish, read_authority, segment

MAX_MANIFEST_BYTES = 4 * 1024 * 1024


def main() -> int:
    """Prints the receipts as JSON; 0 once all files are in the chat, else 1 with the reason."""
    options = _options()
    authority = read_authority(options.authority_file)
    chat = options.chat_id or authority.session_id
    entries = [{"path": os.path.abspath(path)} for path in options.files]
    entries += [_entry(text) for text in options.entry_json]
    if options.manifest is not None:
        entries += _listed(options.manifest)
    if not entries:
        fail("name at least one file")
    publication = options.publication_id or _publication_id(authority, entries)
    body = {"publication_id": publication, "files": entries}
    answer = ask("POST", f"/api/agent/sessions/{segment(chat)}/artifacts", authority, body)
    got = (len(answer.get("receipts", ())), answer.get("chat_id"))
    return finish(answer, as_asked=got == (len(entries), chat))


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
        fail(f"--entry-json is no JSON: {error}")
    if not isinstance(entry, dict):
        fail("--entry-json must be an object")
    return entry


def _listed(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            files = json.loads(file.read(MAX_MANIFEST_BYTES))["files"]
        return [{"path": one} if isinstance(one, str) else dict(one) for one in files]
    except OSError as error:
        fail(f"the manifest cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError):
        fail('the manifest must be {"files": [...]}, of paths or objects')


def _publication_id(authority: Authority, entries: list[dict[str, Any]]) -> str:
    """The same for the same files with the same content in the same turn."""
    digest = hashlib.sha256(json.dumps([authority.run_id, entries], sort_keys=True).encode())
    for entry in entries:
        try:
            with open(os.open(str(entry.get("path")), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                while piece := file.read(1024 * 1024):
                    digest.update(piece)
        except OSError:
            pass  # The server says what is wrong with it.
    return digest.hexdigest()[:32]


if __name__ == "__main__":
    sys.exit(main())
