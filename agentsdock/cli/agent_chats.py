"""``agentsdock-chats``: an agent sends messages to other chats and answers theirs.

For agents: the prompt of a turn names the authority file.  Standard library only.
A repeat of a message in the same turn is one message.
"""

import argparse
import hashlib
import json
import sys
from typing import Any

from agentsdock.cli.agent_request import (
    Authority,
    ask,
    finish,
    read_authority,
    segment,
    text_or_stdin,
)

PATH = "/api/agent/cross-chat"
ACTIONS = {"send": "instruction", "ask": "request_reply"}


def main() -> int:
    """Prints the server's answer as JSON; 0 for what was accepted, else 1 with the reason."""
    options = _options()
    authority = read_authority(options.authority_file)
    if options.command == "list":
        answer = ask("GET", f"{PATH}/routes", authority)
        return finish(answer, as_asked=isinstance(answer.get("routes"), list))
    message = text_or_stdin(options.message)
    if options.command == "respond":
        return _respond(authority, options, message)
    body = {"action": ACTIONS[options.command], "body": message, "artifact_grants": []}
    if options.route is not None:
        return _by_route(authority, options.route, body)
    return _to_target(authority, options.target, body)


def _by_route(authority: Authority, route: str, body: dict[str, Any]) -> int:
    answer = _send(authority, f"{PATH}/routes/{segment(route)}/handoffs", body)
    got = (answer.get("route_id"), answer.get("action"), answer.get("accepted"))
    return finish(answer, as_asked=got == (route, body["action"], True))


def _to_target(authority: Authority, target: str, body: dict[str, Any]) -> int:
    answer = _send(authority, f"{PATH}/handoffs", {**body, "target_session_id": target})
    kind = "handoff" if body["action"] == "instruction" else "exchange"
    return finish(answer, as_asked=isinstance(answer.get(kind), dict))


def _respond(authority: Authority, options: argparse.Namespace, message: str) -> int:
    body = {
        "inbound_leg_id": options.inbound_leg,
        "body": message,
        "request_response": options.request_response,
    }
    answer = _send(authority, f"{PATH}/exchanges/{segment(options.exchange)}/responses", body)
    accepted = answer.get("accepted") is True or isinstance(answer.get("leg"), dict)
    return finish(answer, as_asked=accepted)


def _send(authority: Authority, path: str, body: dict[str, Any]) -> dict[str, Any]:
    seed = json.dumps([authority.run_id, path, body], sort_keys=True)
    key = hashlib.sha256(seed.encode()).hexdigest()
    return ask("POST", path, authority, {**body, "idempotency_key": key})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agentsdock-chats", description=__doc__)
    parser.add_argument("--authority-file", required=True, metavar="PATH")
    parser.add_argument("--chat-id", metavar="ID", help="ignored: the authority is of one chat")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the chats that messages may go to")
    for name, purpose in (("send", "an instruction"), ("ask", "a message that wants a reply")):
        command = commands.add_parser(name, help=purpose)
        place = command.add_mutually_exclusive_group(required=True)
        place.add_argument("--route", metavar="ROUTE_ID")
        place.add_argument("--target", metavar="CHAT_ID")
        _add_message(command)
    respond = commands.add_parser("respond", help="reply to a message of another chat")
    respond.add_argument("--exchange", required=True, metavar="ID")
    respond.add_argument("--inbound-leg", required=True, metavar="ID")
    _add_message(respond)
    respond.add_argument("--request-response", action="store_true", help="wants a reply again")
    return parser.parse_args()


def _add_message(command: argparse.ArgumentParser) -> None:
    help_text = "the text; - reads the standard input"
    command.add_argument("--message", required=True, metavar="TEXT", help=help_text)


if __name__ == "__main__":
    sys.exit(main())
