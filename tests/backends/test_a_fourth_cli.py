"""A whole backend for a CLI that nobody has: what docs/add-a-backend.md says is all there is."""

from typing import Any

import pytest
from msgspec import Struct
from scripted_cli import put

from agentsdock.backends import prompt_envelope
from agentsdock.backends.diagnostics import Asking, Cli
from agentsdock.backends.environment import runner_environment, turn_environment
from agentsdock.backends.guarded_probe import GuardedProbe
from agentsdock.backends.probing import Runtimes
from agentsdock.backends.programs import find
from agentsdock.backends.protocol import Backend, Command, Diagnostic, TurnContext
from agentsdock.config import load
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.guard.once import run_once
from agentsdock.model.sessions import Session
from agentsdock.streams.jsonlines import JsonLineParser, Vocabulary
from agentsdock.streams.neutral import Init, ParserSpec, Result, Text
from agentsdock.turns.machine import TurnEnd, TurnFacts, TurnMachine

PROGRAM = """#!/bin/sh
case "$1" in
--version) echo "parrot 1.2"; exit;;
whoami) test -n "$PARROT_KEY" && echo in || echo out; exit;;
esac
read -r words
printf '{"type":"hello","id":"%s"}\\n' "${3:-parrot-1}"
printf '{"type":"words","words":"%s"}\\n' "$words"
echo '{"type":"bye"}'
"""
PARROT = Cli("parrot", "Parrot CLI", ("parrot",), "PARROT_BIN", "from a tree", ("whoami",))


class Line(Struct, tag_field="type"):
    pass


class Hello(Line, tag="hello"):
    id: str


class Words(Line, tag="words"):
    words: str


class Bye(Line, tag="bye"):
    pass


class ParrotParser(JsonLineParser[Line]):
    vocabulary = Vocabulary[Line](Hello, Words, Bye)
    said = ""

    def accept(self, line: Line) -> None:
        match line:
            case Hello():
                self.emit(Init(line.id))
            case Words():
                self.said = line.words
                self.emit(Text(self.said, len(self.said)))
            case Bye():
                self.emit(Result(False, self.said))

    def flush(self) -> None:
        pass


class Parrot:
    name = "parrot"
    forks = False
    usage_is_total = False

    def __init__(self, settings):
        self.environ = runner_environment(settings.environ)

    async def diagnose(self, run):
        program = find("parrot", self.environ["PATH"])
        if program is None:
            return self.missing()
        return await self.check_sign_in(run, Diagnostic("parrot", installed=True, program=program))

    async def check_sign_in(self, run, found):
        answer = await Asking(run, self.environ, 5)(found.program, "whoami")
        if answer.stdout == "in\n":
            return PARROT.ready(found)
        return PARROT.signed_out(found, "It does not know you.", "Feed it")

    def missing(self):
        return PARROT.missing(named=False)

    async def models(self, run, diagnostic) -> dict[str, Any]:
        return self.fallback_models("Built-in list")

    def fallback_models(self, source):
        return {"models": [{"value": "grey", "label": "Grey"}], "model_source": source}

    def parser(self, spec):
        return ParrotParser(spec)

    def check_prompt(self, prompt, files=()):
        pass

    def compose(self, session, prompt, files=(), helpers=""):
        part = prompt_envelope.user_part(prompt, files)
        return prompt_envelope.compose(session, "cursor", part, helpers, aside=True)

    def command(self, admitted, session, envelope, context):
        return Command(
            argv=(admitted.executable, "repeat"),
            shown_argv=("parrot", "repeat"),
            env=turn_environment(self.environ, context, admitted.executable),
            stdin=envelope.prompt.encode() + b"\n",
        )


@pytest.mark.parametrize("key", ["seeds", ""])
async def test_a_fourth_cli_is_probed_admitted_and_runs_a_turn(tmp_path, key):
    put(tmp_path / "bin", "parrot", PROGRAM)
    settings = load({"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PARROT_KEY": key})
    parrot: Backend = Parrot(settings)
    async with ZygoteLauncher() as launcher:
        runtimes = Runtimes(settings, {"parrot": parrot}, GuardedProbe(launcher, "/"))
        entry = (await runtimes.catalog())["backends"]["parrot"]
        assert entry["available"] is bool(key)
        if not key:
            assert entry["diagnostic"]["action"] == "Feed it, then use Recheck CLIs."
            return
        chat = Session(id="sess_0", created_at="t", updated_at="t")
        envelope = parrot.compose(chat, "who is a pretty bird")
        context = TurnContext("sess_0", "run_0", "http://127.0.0.1:7850", "/m.json")
        command = parrot.command(await runtimes.admit("parrot"), chat, envelope, context)
        ran = await run_once(
            launcher, command.argv, dict(command.env), "/", 10, 4096, command.stdin
        )
    machine = TurnMachine(TurnFacts("run_0", "parrot"), parrot.parser(ParserSpec()))
    drafts = [*machine.feed(ran.stdout), *machine.stdout_ended()]
    drafts += machine.exited(ran.exit_code, killed=False)
    *_, end = [*drafts, *machine.finish(TurnEnd())]
    assert machine.succeeded
    assert end.payload["result_text"] == "who is a pretty bird"


def test_what_it_does_not_know_is_told():
    machine = TurnMachine(TurnFacts("run_0", "parrot"), ParrotParser(ParserSpec()))
    machine.feed(b'{"type":"hello","id":"parrot-1"}\n{"type":"squawk"}\n')
    assert machine.verdict.code == "unknown_schema"
