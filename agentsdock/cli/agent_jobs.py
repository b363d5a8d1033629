"""``agentsdock-jobs``: an agent sees and changes the scheduled jobs of its chat.

For agents: the prompt of a turn names the authority file.  Standard library only.
"""

import argparse
import json
import sys
from typing import Any

from agentsdock.cli.agent_request import (
    Authority,
    ask,
    fail,
    finish,
    read_authority,
    segment,
    text_or_stdin,
)


def main() -> int:
    """Prints the server's answer as JSON; 0 for what was done, else 1 with the reason."""
    options = _options()
    authority = read_authority(options.authority_file)
    chat = options.chat_id or authority.session_id
    jobs = f"/api/agent/sessions/{segment(chat)}/jobs"
    if options.command == "list":
        answer = ask("GET", jobs, authority)
        return finish(answer, as_asked=isinstance(answer.get("jobs"), list))
    if options.command == "get":
        return _get(jobs, authority, options.job)
    if options.command == "create":
        answer = ask("POST", jobs, authority, _object(options.fields))
        return finish(answer, as_asked=_job_of(answer).get("session_id") == chat)
    job = f"{jobs}/{segment(options.job)}"
    if options.command == "runs":
        answer = ask("GET", f"{job}/runs?limit={options.limit}", authority)
        return finish(answer, as_asked=answer.get("job_id") == options.job)
    if options.command == "update":
        answer = ask("PATCH", job, authority, _object(options.fields))
        return finish(answer, as_asked=_job_of(answer).get("id") == options.job)
    answer = ask("DELETE", job, authority)
    return finish(answer, as_asked=answer.get("deleted") is True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agentsdock-jobs", description=__doc__)
    parser.add_argument("--authority-file", required=True, metavar="PATH")
    parser.add_argument("--chat-id", metavar="ID")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all jobs of the chat")
    fields = "the job's fields as a JSON object; - reads the standard input"
    create = commands.add_parser("create", help="a new job")
    create.add_argument("fields", metavar="JSON", help=fields)
    for name, purpose in (
        ("get", "one job"),
        ("runs", "the latest runs of a job"),
        ("update", "change fields of a job"),
        ("delete", "remove a job"),
    ):
        command = commands.add_parser(name, help=purpose)
        command.add_argument("job", metavar="JOB_ID")
        if name == "runs":
            command.add_argument("--limit", type=int, default=20, metavar="1..100")
        if name == "update":
            command.add_argument("fields", metavar="JSON", help=fields)
    return parser.parse_args()


def _get(jobs: str, authority: Authority, job_id: str) -> int:
    found = ask("GET", jobs, authority).get("jobs") or ()
    job = next((one for one in found if isinstance(one, dict) and one.get("id") == job_id), None)
    if job is None:
        fail(f"this chat has no job {job_id}")
    return finish({"job": job}, as_asked=True)


def _job_of(answer: dict[str, Any]) -> dict[str, Any]:
    job = answer.get("job")
    return job if isinstance(job, dict) else {}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text_or_stdin(text))
    except ValueError as error:
        fail(f"the fields are no JSON: {error}")
    if not isinstance(found, dict):
        fail("the fields must be a JSON object")
    return found


if __name__ == "__main__":
    sys.exit(main())
