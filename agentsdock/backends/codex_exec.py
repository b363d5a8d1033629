"""Codex in ``exec`` mode: found, probed, and commanded for one turn.

``exec`` never asks: what would need an approval is refused by the CLI itself.  A policy that
it cannot carry out is never widened: the sandbox then lets the agent read only.
"""

import os
import pathlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import trio

from agentsdock.backends import codex_models, prompt_envelope
from agentsdock.backends.diagnostics import Asking, Cli
from agentsdock.backends.environment import runner_environment, turn_environment
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
from agentsdock.model.sessions import CODEX_SANDBOX_MODES, Session
from agentsdock.streams.codex import CodexParser
from agentsdock.streams.neutral import ParserSpec, StreamParser

NAME = "codex"
CLI = Cli(
    backend=NAME,
    title="Codex CLI",
    programs=("codex",),
    variable="CODEX_BIN",
    install="with `npm install -g @openai/codex`",
    checks=("--version", "login status"),
)
KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
READ_ONLY = CODEX_SANDBOX_MODES[0]
MAX_CONFIG_BYTES = 256 * 1024
SHOWN_INSTRUCTIONS = "developer_instructions=<instructions>"

_VERSION = re.compile(r"^codex-cli (\d+\.\d+\.\d+\S*)\s*$", re.MULTILINE)
_SIGNED_OUT = re.compile(r"^not logged in\b", re.IGNORECASE | re.MULTILINE)


class CodexExec:
    """Backend of Codex."""

    name = NAME
    forks = True
    usage_is_total = True

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
        """``login status`` sees the CLI's own sign-in only; ``exec`` runs with a key as well."""
        program = found.program
        assert program is not None
        answer = await ask(program, "login", "status")
        if answer.exit_code == 0:
            return CLI.ready(found)
        told = plain(f"{answer.stdout}\n{answer.stderr}")
        if _SIGNED_OUT.search(told):
            if key := next((name for name in KEYS if name in ask.env), None):
                return CLI.ready(found, f"The Codex CLI is installed and uses the key in {key}.")
            if provider := await trio.to_thread.run_sync(_own_provider, ask.env):
                message = f"The Codex CLI is installed and uses its provider `{provider}`."
                return CLI.ready(found, message)
            return CLI.signed_out(
                found,
                "The Codex CLI is not signed in.",
                f"Run `{CLI.typed(found)} login` as the user that runs the server, or set "
                "`OPENAI_API_KEY` for the server",
            )
        asked = f"`{program.name} login status`"
        trouble = ask.trouble(answer, asked)
        return CLI.unclear(found, str(trouble))

    def missing(self) -> Diagnostic:
        return CLI.missing(named=self._binary is not None)

    # ---------------------------------------------------------------- catalogue

    async def models(self, run: RunProbe, diagnostic: Diagnostic) -> dict[str, Any]:
        program = diagnostic.program
        if not diagnostic.ready or program is None:
            return self.fallback_models("Codex runtime unavailable")
        answer = await Asking.of(self._settings, run)(program, "debug", "models")
        source = f"{program.name} debug models"
        found = codex_models.listed(answer.stdout, source) if answer.exit_code == 0 else None
        return found or self.fallback_models(f"{source} failed")

    def fallback_models(self, source: str) -> dict[str, Any]:
        return codex_models.built_in(source)

    # --------------------------------------------------------------------- turn

    def parser(self, spec: ParserSpec) -> StreamParser:
        return CodexParser(spec)

    def check_prompt(self, prompt: str, files: Sequence[AttachedFile] = ()) -> None:
        """Stdin takes whatever a request can bring."""

    def compose(
        self,
        session: Session,
        prompt: str,
        files: Sequence[AttachedFile] = (),
        helpers: str = "",
    ) -> Envelope:
        """A thread takes instructions at its start only; later ones come in the prompt."""
        part = prompt_envelope.user_part(prompt, files)
        fresh = session.binding(NAME).session_id is None and session.fork_from is None
        return prompt_envelope.compose(session, NAME, part, helpers, files=files, aside=fresh)

    def command(
        self, admitted: Admitted, session: Session, envelope: Envelope, context: TurnContext
    ) -> Command:
        head = (*_EXEC, "--sandbox", sandbox(session), *_choices(session))
        told: tuple[str, ...] = ()
        shown: tuple[str, ...] = ()
        if envelope.instructions is not None:
            told = ("-c", f"developer_instructions={_toml(envelope.instructions)}")
            shown = ("-c", SHOWN_INSTRUCTIONS)
        tail = (*_thread(session), "-")
        return Command(
            argv=(admitted.executable, *head, *told, *tail),
            shown_argv=(CLI.programs[0], *head, *shown, *tail),
            env=turn_environment(self._environment(), context, admitted.executable),
            stdin=envelope.prompt.encode("utf-8", "replace"),
            stop_signals=("SIGINT",),
        )

    def _environment(self) -> dict[str, str]:
        return runner_environment(self._settings.environ)


_EXEC = ("exec", "--json", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false")


def sandbox(session: Session) -> str:
    """``untrusted`` wants to be asked before most commands, and a permission profile is a
    policy of other transports: under both nothing is changed, for nobody can be asked."""
    if session.codex_approval_policy == "untrusted" or session.codex_permission_profile:
        return READ_ONLY
    return session.codex_sandbox_mode


def _choices(session: Session) -> tuple[str, ...]:
    effort = session.effort
    return (
        *(("-m", session.model) if session.model else ()),
        *(("-c", f"model_reasoning_effort={_toml(effort)}") if effort else ()),
    )


def _thread(session: Session) -> tuple[str, ...]:
    """Go on with the chat's thread, or begin a fork with a copy of its parent's."""
    if own := session.binding(NAME).session_id:
        return ("resume", own)
    return ("fork", session.fork_from) if session.fork_from else ()


def _toml(text: str) -> str:
    """A TOML string: JSON's is one, but for the delete character and half characters."""
    whole = text.encode("utf-8", "replace").decode()
    return msgspec.json.encode(whole).decode().replace("\x7f", "\\u007f")


def _own_provider(env: Mapping[str, str]) -> str | None:
    """The provider that the CLI's configuration names, where it can be reached as it is.

    ``login status`` knows nothing of those.
    """
    home = env.get("CODEX_HOME") or os.path.join(env.get("HOME", ""), ".codex")
    try:
        with pathlib.Path(home, "config.toml").open("rb") as file:
            config = tomllib.loads(file.read(MAX_CONFIG_BYTES).decode())
    except (OSError, ValueError):
        return None
    name = config.get("model_provider")
    providers = config.get("model_providers")
    provider = providers.get(name) if isinstance(providers, dict) else None
    if not isinstance(name, str) or not isinstance(provider, dict):
        return None
    key = provider.get("env_key")
    return name if not isinstance(key, str) or env.get(key) else None
