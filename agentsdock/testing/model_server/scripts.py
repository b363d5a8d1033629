"""What the model says: scripts by name, and which one a conversation asks for.

A script is a list of replies and a reply a list of steps.  The reply that is played is number
n where the conversation already holds n replies of the model behind the message with the mark,
so the server remembers no conversation and resumed ones just go on.  Beyond the last reply the
model says that it is done.

The mark stands in a user's message: ``[[stub:NAME]]``, ``[[stub:NAME key=value key="two words"]]``
or the script itself as JSON, ``[[stub:[[{"say": "hi"}]]]]``.  The newest message with a mark
counts; without any, a model called ``stub-NAME`` chooses.  ``{key}`` in a script stands for the
value of the mark.

=============================================== ==================================================
``{"say": TEXT, "size": 12, "delay": 0}``       text in pieces of that many characters
``{"think": TEXT}``                             a thinking block, a summary of reasoning
``{"shell": COMMAND}``                          a call of the CLI's own shell tool
``{"write": PATH, "content": TEXT}``            a new file by the CLI's own tool
``{"edit": PATH, "old": TEXT, "new": TEXT}``    another line in a file
``{"read": PATH}``                              a look into a file
``{"tool": NAME, "input": VALUE}``              a call of any tool
``{"item": OBJECT}``                            a content block or output item as it is
``{"fail": STATUS, "type": T, "message": M}``   an HTTP error; ``retry_after`` in seconds
``{"stream_error": TYPE, "message": M}``        an error inside the stream, which then ends
``{"stall": SECONDS}``                          silence, then the end of the connection
``{"drop": true}``                              a reset connection
``{"cut": true}``                               an end of the body without the last event
``{"raw": TEXT}``                               these characters in the stream
``{"stop": REASON}``                            another stop reason: ``max_tokens``, ``refusal``
``{"usage": {"input": N, "output": N}}``        other numbers of tokens
=============================================== ==================================================

``times: N`` makes one of ``fail``, ``stream_error``, ``drop`` and ``cut`` happen N times in this
server's life and not again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

Step = Mapping[str, Any]
Script = Sequence[Sequence[Step]]

PANGRAM = "Sphinx of black quartz, judge my vow; the tests run on and each one has its say. "
OVER: Step = {"say": "All done."}
NO_TOOLS: Step = {"say": "A short text."}
"""Told to a request that offers no tools: a CLI's own call for a title or a summary."""

ENDERS = frozenset({"stream_error", "drop", "cut"})
CALLS = frozenset({"shell", "write", "edit", "read", "tool"})

_PARTIAL: Step = {"say": "A partial answer"}


def _failing(status: int, kind: str, **more: Any) -> Step:
    return {"fail": status, "type": kind, "message": f"scripted: {kind}", **more}


_SLEEP = 'python3 -c "import time; time.sleep({seconds})"'

SCRIPTS: dict[str, Script] = {
    "text": [[{"say": "Hello from the scripted model. The answer is 42."}]],
    "echo": [[{"say": "{text}"}]],
    "unicode": [
        [{"say": 'Grüße, 世界 🌍 — e\u0301 \u202eRTL\u202c "q" \\b\\ \u2028 a separator.\nEnd.'}]
    ],
    "long": [[{"say": PANGRAM * 250, "size": 250}]],
    "think": [[{"think": "First the question, then the answer."}, {"say": "It is yes."}]],
    "slow": [[{"say": PANGRAM * 2, "size": 8, "delay": 0.1}]],
    "empty": [[]],
    "shell": [[{"say": "Running it."}, {"shell": "{cmd}"}], [{"say": "The command has run."}]],
    "shellfail": [[{"shell": "echo out; echo err >&2; exit 3"}], [{"say": "It failed with 3."}]],
    # A bare sleep is refused by Claude Code; so the shell stays, with a child.
    "longshell": [
        [{"say": "Starting a long command."}, {"shell": f"{_SLEEP}; echo waited"}],
        [{"say": "The long command ended."}],
    ],
    "bigout": [[{"shell": "seq 1 {n}"}], [{"say": "Printed many lines."}]],
    "write": [[{"write": "{path}", "content": "hello\n"}], [{"say": "Wrote the file."}]],
    "multi": [
        [{"think": "A look around first."}, {"say": "Looking."}, {"shell": "ls -1"}],
        [{"say": "Now a file."}, {"write": "notes.txt", "content": "hello\nworld\n"}],
        [{"read": "notes.txt"}],
        [{"edit": "notes.txt", "old": "hello", "new": "goodbye"}],
        [{"shell": "cat notes.txt"}],
        [{"say": "Done: notes.txt now says goodbye world."}],
    ],
    "parallel": [[{"shell": "echo one"}, {"shell": "echo two"}], [{"say": "Both ran."}]],
    "badtool": [[{"tool": "no_such_tool", "input": {"x": 1}}], [{"say": "There is no such."}]],
    "loop": [[{"shell": "echo again"}]] * 100,
    "daemon": [
        [{"shell": "setsid sh -c 'sleep {seconds} & sleep {seconds}' >/dev/null 2>&1 & echo up"}],
        [{"say": "Started a daemon."}],
    ],
    "background": [
        [{"tool": "{background}", "input": {"command": _SLEEP, "run_in_background": True}}],
        [{"say": "It runs in the background."}],
    ],
    "yield": [
        [{"tool": "exec_command", "input": {"cmd": "sleep {seconds}", "yield_time_ms": 1000}}],
        [{"say": "It runs in the background."}],
    ],
    "e400": [[_failing(400, "invalid_request_error")]],
    "e401": [[_failing(401, "authentication_error")]],
    "e403": [[_failing(403, "permission_error")]],
    "e404": [[_failing(404, "not_found_error")]],
    "e429": [[_failing(429, "rate_limit_error", retry_after=1)]],
    "e429once": [
        [_failing(429, "rate_limit_error", retry_after=1, times=1), {"say": "After one 429."}]
    ],
    "e500": [[_failing(500, "api_error")]],
    "e500twice": [[_failing(500, "api_error", times=2), {"say": "After two 500s."}]],
    "e529": [[_failing(529, "overloaded_error")]],
    "toolthen500": [[{"shell": "echo before"}], [_failing(500, "api_error")]],
    "streamerror": [[_PARTIAL, {"stream_error": "overloaded_error", "message": "scripted"}]],
    "stall": [[_PARTIAL, {"stall": 3600}]],
    "stallfirst": [[{"stall": 3600}]],
    "drop": [[_PARTIAL, {"drop": True}]],
    "droponce": [[{"say": "A whole answer after all."}, {"drop": True, "times": 1}]],
    "cut": [[_PARTIAL, {"cut": True}]],
    "garbage": [
        [{"say": "Before. "}, {"raw": "event: nonsense\ndata: {not json\n\n"}, {"say": "After."}]
    ],
    "maxtokens": [[{"say": "This was cut at the token"}, {"stop": "max_tokens"}]],
    "refusal": [[{"say": "That is not possible."}, {"stop": "refusal"}]],
}
DEFAULTS = {
    "cmd": "echo hello",
    "path": "notes.txt",
    "seconds": "30",
    "n": "5000",
    "text": "echo",
    "background": "Bash",
}

_NAMED = re.compile(r"\[\[stub:\s*([A-Za-z][\w-]*)((?:\s+\w+=(?:\"[^\"]*\"|[^\s\]]+))*)\s*\]\]")
_WHOLE = re.compile(r"\[\[stub:\s*(\[\s*\[.*?\]\s*\])\s*\]\]", re.DOTALL)
_VALUE = re.compile(r"(\w+)=(?:\"([^\"]*)\"|([^\s\]]+))")
_HOLE = re.compile(r"\{(\w+)\}")
_MODEL = "stub-"


@frozen
class Said:
    """One message or item of a conversation; ``role`` is user, model or tool."""

    role: str
    text: str = ""


@frozen
class Scene:
    """The reply to play.  ``mark`` tells it from every other, for what happens N times."""

    name: str
    index: int
    steps: tuple[Step, ...]
    mark: str = field(repr=False)


def choose(
    scripts: Mapping[str, Script], conversation: Sequence[Said], model: str, *, tools: bool
) -> Scene:
    """What the model says next.  A script that is not there is an HTTP 404 of the model."""
    at, found = _marked(conversation)
    if found is None:
        name = model.removeprefix(_MODEL) if model.startswith(_MODEL) else "text"
        users = [i for i, said in enumerate(conversation) if said.role == "user"]
        at, found = (users[-1] if users else -1), (name, {})
    source, values = found
    if source.startswith("["):
        name, script = "inline", json.loads(source)
    else:
        name, script = source, scripts.get(source) or [[_failing(404, "not_found_error")]]
    index = _replies(conversation[at + 1 :])
    if not tools:
        steps: Sequence[Step] = [NO_TOOLS]
    else:
        steps = script[index] if index < len(script) else [OVER]
    filled = tuple(_fill(step, {**DEFAULTS, **values}) for step in steps)
    return Scene(name, index, filled, json.dumps([source, values, index]))


def _marked(conversation: Sequence[Said]) -> tuple[int, tuple[str, dict[str, str]] | None]:
    for at in range(len(conversation) - 1, -1, -1):
        said = conversation[at]
        if said.role != "user":
            continue
        whole = _WHOLE.findall(said.text)
        if whole:
            return at, (whole[-1], {})
        named = _NAMED.findall(said.text)
        if named:
            name, values = named[-1]
            return at, (name, {key: quoted or bare for key, quoted, bare in _VALUE.findall(values)})
    return -1, None


def _replies(behind: Sequence[Said]) -> int:
    """Runs of the model's items: text and calls of one reply are several."""
    roles = [said.role for said in behind]
    return sum(
        role == "model" and (at == 0 or roles[at - 1] != "model") for at, role in enumerate(roles)
    )


def _fill(value: Any, values: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _HOLE.sub(lambda hole: values.get(hole[1], hole[0]), value)
        case dict():
            return {key: _fill(one, values) for key, one in value.items()}
        case list():
            return [_fill(one, values) for one in value]
    return value
