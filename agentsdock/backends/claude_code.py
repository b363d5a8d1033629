"""Claude Code in print mode: found, probed, and commanded for one turn.

The prompt goes through stdin, so that no argument bounds it, ``ps`` shows nothing of it and a
text that begins with a dash is no option.  Flags hold for one process only: mode, model and
instructions are given with every turn.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from agentsdock.backends import prompt_envelope
from agentsdock.backends.diagnostics import Asking, Cli
from agentsdock.backends.efforts import CLAUDE_EFFORTS
from agentsdock.backends.environment import runner_environment, turn_environment
from agentsdock.backends.options import SERVER_DEFAULT, effort_options, options
from agentsdock.backends.plain_text import plain
from agentsdock.backends.protocol import (
    Admitted,
    AttachedFile,
    Command,
    Diagnostic,
    Envelope,
    RunProbe,
    TurnContext,
)
from agentsdock.config import Settings
from agentsdock.model.sessions import Session
from agentsdock.streams.claude import ClaudeParser
from agentsdock.streams.neutral import ParserSpec, StreamParser

NAME = "claude"
CLI = Cli(
    backend=NAME,
    title="Claude Code CLI",
    programs=("claude",),
    variable="CLAUDE_BIN",
    install="with `npm install -g @anthropic-ai/claude-code`",
    checks=("--version", "auth status"),
)
MODELS = {
    "fable": "Fable",
    "claude-fable-5": "Claude Fable 5",
    "sonnet": "Sonnet",
    "opus": "Opus",
    "opus[1m]": "Opus (1M context)",
    "claude-opus-4-8": "Claude Opus 4.8",
    "claude-opus-4-8[1m]": "Claude Opus 4.8 (1M context)",
    "haiku": "Haiku",
}
"""The CLI lists none; it takes any name."""
# A turn must end when its answer is there, and its program must stay the one that was admitted.
SUPERVISED = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1", "DISABLE_AUTOUPDATER": "1"}
STREAM = ("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages")
SHOWN_INSTRUCTIONS = "<instructions>"

_VERSION = re.compile(r"^(\d+\.\d+\.\d+\S*) \(Claude Code\)\s*$", re.MULTILINE)


class ClaudeCode:
    """Backend of Claude Code."""

    name = NAME
    forks = True
    usage_is_total = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._binary = settings.backends[NAME].binary

    # ------------------------------------------------------------------ probing

    async def diagnose(self, run: RunProbe) -> Diagnostic:
        ask = Asking.of(self._settings, run)
        found = await CLI.identified(ask, self._binary, _VERSION)
        return found if found.version is None else await self._signed_in(ask, found)

    async def check_sign_in(self, run: RunProbe, diagnostic: Diagnostic) -> Diagnostic:
        return await self._signed_in(Asking.of(self._settings, run), diagnostic)

    async def _signed_in(self, ask: Asking, found: Diagnostic) -> Diagnostic:
        """``auth status`` tells what is configured; whether a key is good only a turn tells."""
        program = found.program
        assert program is not None
        answer = await ask(program, "auth", "status")
        told = _logged_in(answer.stdout)
        if told and answer.exit_code == 0:
            return CLI.ready(found)
        if told is False:
            return CLI.signed_out(
                found,
                "The Claude Code CLI is not signed in.",
                f"Run `{CLI.typed(found)} auth login` as the user that runs the server, or set "
                "`ANTHROPIC_API_KEY` for the server",
            )
        asked = f"`{program.name} auth status`"
        trouble = ask.trouble(answer, asked) or f"{asked} gave no clear answer"
        return CLI.unclear(found, trouble)

    def missing(self) -> Diagnostic:
        return CLI.missing(named=self._binary is not None)

    # ---------------------------------------------------------------- catalogue

    async def models(self, run: RunProbe, diagnostic: Diagnostic) -> dict[str, Any]:
        return self.fallback_models("Built-in list")

    def fallback_models(self, source: str) -> dict[str, Any]:
        return {
            "models": [SERVER_DEFAULT, *options(MODELS)],
            "efforts": effort_options(CLAUDE_EFFORTS),
            "model_source": source,
            "effort_source": source,
            "default_model": None,
            "default_effort": None,
        }

    # --------------------------------------------------------------------- turn

    def parser(self, spec: ParserSpec) -> StreamParser:
        return ClaudeParser(spec)

    def check_prompt(self, prompt: str, files: Sequence[AttachedFile] = ()) -> None:
        """Stdin takes whatever a request can bring."""

    def compose(
        self,
        session: Session,
        prompt: str,
        files: Sequence[AttachedFile] = (),
        helpers: str = "",
    ) -> Envelope:
        """A text that begins with a slash may be one of the CLI's commands: it stays alone."""
        part = prompt_envelope.user_part(prompt, files)
        if prompt.startswith("/"):
            helpers = ""
        return prompt_envelope.compose(session, NAME, part, helpers, files=files, aside=True)

    def command(
        self, admitted: Admitted, session: Session, envelope: Envelope, context: TurnContext
    ) -> Command:
        before = (*STREAM, *_session_flags(session), *_choices(session))
        readable = tuple(f"Read(/{folder}/**)" for folder in envelope.folders)
        after = ("--allowedTools", *readable) if readable else ()
        head = (*before, "--append-system-prompt")
        env = turn_environment(self._environment(), context, admitted.executable)
        return Command(
            argv=(admitted.executable, *head, str(envelope.instructions), *after),
            shown_argv=(CLI.programs[0], *head, SHOWN_INSTRUCTIONS, *after),
            env={**SUPERVISED, **env},
            stdin=envelope.prompt.encode("utf-8", "replace"),
            stop_signals=("SIGINT", "SIGTERM"),
        )

    def _environment(self) -> dict[str, str]:
        return runner_environment(self._settings.environ)


def _session_flags(session: Session) -> tuple[str, ...]:
    """Go on with the chat's session, or begin a fork with a copy of its parent's."""
    if own := session.binding(NAME).session_id:
        return ("--resume", own)
    if session.fork_from:
        return ("--resume", session.fork_from, "--fork-session")
    return ()


def _choices(session: Session) -> tuple[str, ...]:
    """The mode ``default`` has another name in each release, and is meant where none is given."""
    mode = session.claude_permission_mode
    return (
        *(("--permission-mode", mode) if mode != "default" else ()),
        *(("--model", session.model) if session.model else ()),
        *(("--effort", session.effort) if session.effort else ()),
    )


def _logged_in(text: str) -> bool | None:
    """None where the answer is not the JSON that it should be."""
    try:
        told = msgspec.json.decode(plain(text))
    except msgspec.DecodeError:
        return None
    found = told.get("loggedIn") if isinstance(told, dict) else None
    return found if isinstance(found, bool) else None
