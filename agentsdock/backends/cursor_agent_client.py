"""The Cursor CLI: found, probed, and commanded for one turn.

Which spelling of an option a build has is learned by the probe and then used; the text of
its answers is read by :mod:`agentsdock.backends.cursor_texts`.
"""

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from agentsdock.backends import cursor_texts as texts
from agentsdock.backends import prompt_envelope
from agentsdock.backends.diagnostics import Asking, Cli, because
from agentsdock.backends.environment import runner_environment, turn_environment
from agentsdock.backends.plain_text import public_reason
from agentsdock.backends.programs import Program, find
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
from agentsdock.model.errors import PromptTooLarge
from agentsdock.model.sessions import CURSOR_PERMISSION_MODES, Session
from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import ParserSpec, StreamParser

NAME = "cursor"
CLI = Cli(
    backend=NAME,
    title="Cursor CLI",
    programs=("cursor-agent", "agent"),
    variable="CURSOR_BIN",
    install="from https://cursor.com/install",
    checks=("--version", "status", "--list-models"),
)
ARGUMENT_BYTES = 131_071
"""The most that Linux takes as one argument: 128 KiB with the byte that ends it."""
SHOWN_PROMPT = "<prompt>"


@frozen
class Features:
    """What the probe of a compatible build learned."""

    spelled: texts.CommandLine
    tier: str | None = None


@frozen
class Candidate:
    """An installed program and why it cannot be used, if it cannot."""

    program: Program
    features: Features | None = None
    problem: str | None = None
    version: str | None = None


class CursorAgentClient:
    """Backend of the Cursor CLI."""

    name = NAME
    forks = False
    usage_is_total = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._binary = settings.backends[NAME].binary

    # ------------------------------------------------------------------ probing

    async def diagnose(self, run: RunProbe) -> Diagnostic:
        """The first compatible candidate decides; without one, the first that is installed."""
        probe = Asking.of(self._settings, run)
        unusable: Candidate | None = None
        seen: set[Program] = set()
        for name in (self._binary,) if self._binary else CLI.programs:
            program = find(name, probe.env["PATH"])
            if program is None or program in seen:
                continue
            seen.add(program)
            candidate = await _examine(probe, program)
            if candidate.features is not None:
                return await self._diagnose_compatible(probe, candidate)
            unusable = unusable or candidate
        return self.missing() if unusable is None else _incompatible(unusable)

    async def _diagnose_compatible(self, probe: Asking, candidate: Candidate) -> Diagnostic:
        program = candidate.program
        answer = await probe(program, "--version")
        found = Diagnostic(
            NAME,
            status="error",
            installed=True,
            version=texts.read_version(answer.stdout, answer.stderr),
            program=program,
            features=candidate.features,
        )
        if answer.exit_code != 0:
            trouble = probe.trouble(answer, f"`{program.name} --version`")
            reason = public_reason(answer.stderr or answer.stdout)
            return CLI.error(evolve(found, version=None), f"{trouble}{because(reason)}.")
        return await self._signed_in(probe, found)

    async def check_sign_in(self, run: RunProbe, diagnostic: Diagnostic) -> Diagnostic:
        return await self._signed_in(Asking.of(self._settings, run), diagnostic)

    async def _signed_in(self, probe: Asking, found: Diagnostic) -> Diagnostic:
        """Ask ``status``, or where a key is set the model list: ``status`` knows no keys."""
        program, features = found.program, found.features
        assert program is not None
        has_key = "CURSOR_API_KEY" in probe.env
        question = features.spelled.listing if has_key else ("status",)
        answer = await probe(program, *question)
        told = f"{answer.stdout}\n{answer.stderr}"
        verdict = texts.read_sign_in(told)
        if verdict is texts.SignIn.OUT:
            return _signed_out(found, has_key)
        if answer.exit_code == 0 and (has_key or verdict is texts.SignIn.IN):
            return CLI.ready(found)
        asked = f"`{program.name} {question[0]}`"
        trouble = probe.trouble(answer, asked) or f"{asked} gave no clear answer"
        reason = (
            texts.known_sign_in_trouble(told) or "its output is left out, it may name an account"
        )
        return CLI.unclear(found, f"{trouble} ({reason})")

    def missing(self) -> Diagnostic:
        return CLI.missing(named=self._binary is not None)

    # ---------------------------------------------------------------- catalogue

    async def models(self, run: RunProbe, diagnostic: Diagnostic) -> dict[str, Any]:
        program, features = diagnostic.program, diagnostic.features
        if not diagnostic.ready or program is None:
            return self.fallback_models("Cursor runtime unavailable")
        probe = Asking.of(self._settings, run)
        answer = await probe(program, *features.spelled.listing)
        source = f"{program.name} {features.spelled.listing[0]}"
        if answer.exit_code != 0:
            return self.fallback_models(f"{source} failed")
        models = texts.read_models(answer.stdout)
        if not models:
            return self.fallback_models(f"{source} empty")
        default = texts.default_model(models)
        free = texts.is_free(features.tier)
        options = [{"value": "", "label": default.label}, *(_option(one, free) for one in models)]
        return _entry(options, source, default.id)

    def fallback_models(self, source: str) -> dict[str, Any]:
        return _entry([{"value": "auto", "label": "Auto"}], source, "auto")

    # --------------------------------------------------------------------- turn

    def parser(self, spec: ParserSpec) -> StreamParser:
        return CursorParser(spec)

    def check_prompt(self, prompt: str, files: Sequence[AttachedFile] = ()) -> None:
        _check_size(prompt_envelope.user_part(prompt, files), "The message with its file list")

    def compose(
        self,
        session: Session,
        prompt: str,
        files: Sequence[AttachedFile] = (),
        helpers: str = "",
    ) -> Envelope:
        part = prompt_envelope.user_part(prompt, files)
        return prompt_envelope.compose(session, NAME, part, helpers)

    def command(
        self, admitted: Admitted, session: Session, envelope: Envelope, context: TurnContext
    ) -> Command:
        _check_size(envelope.prompt, "The prompt with its instructions and memory")
        spelled = admitted.features.spelled
        resume_id = session.binding(NAME).session_id
        head = (admitted.executable, spelled.print_flag)
        tail = (
            *("--output-format", "stream-json"),
            *(("--resume", resume_id) if resume_id else ()),
            *(("--model", session.model) if session.model else ()),
            *permission_flags(session.cursor_permission_mode, spelled),
        )
        shown = (admitted.executable.rpartition("/")[2], spelled.print_flag, SHOWN_PROMPT)
        return Command(
            argv=(*head, envelope.prompt, *tail),
            shown_argv=(*shown, *tail),
            env=turn_environment(self._environment(), context, admitted.executable),
        )

    def _environment(self) -> dict[str, str]:
        return runner_environment(self._settings.environ)


def permission_flags(mode: str, spelled: texts.CommandLine) -> tuple[str, ...]:
    """Options of a permission mode; an unknown one is ``default``.

    Trust is always given: without it the CLI refuses to run without a terminal.
    """
    if mode == "full_access":
        return ("--trust", "--force")
    if mode == "plan":
        return ("--trust", *spelled.plan)
    return ("--trust",)


async def _examine(probe: Asking, program: Program) -> Candidate:
    """Whether a program is a Cursor agent that can do what a turn needs."""
    answer = await probe(program, "--help")
    if trouble := probe.trouble(answer, f"`{program.name} --help`"):
        reason = public_reason(answer.stderr or answer.stdout)
        return Candidate(program, problem=f"{trouble}{because(reason)}")
    spelled = texts.read_help(f"{answer.stdout}\n{answer.stderr}")
    if spelled.missing:
        version = await probe(program, "--version")
        release = texts.read_version(version.stdout, version.stderr)
        lacks = f"`{program.name}` {release or 'of unknown version'} lacks "
        problem = lacks + ", ".join(spelled.missing)
        return Candidate(program, problem=problem, version=release)
    about = await probe(program, "about")
    told = f"{about.stdout}\n{about.stderr}"
    if about.exit_code != 0 or not texts.is_cursor_agent(told):
        # Another program's words are not repeated.
        return Candidate(program, problem=f"`{program.name}` does not identify itself as the agent")
    return Candidate(program, features=Features(spelled, texts.read_tier(told)))


def _signed_out(found: Diagnostic, has_key: bool) -> Diagnostic:
    assert found.program is not None
    name = found.program.name
    if has_key:
        message = "The Cursor CLI does not accept the key in CURSOR_API_KEY."
        action = f"Correct `CURSOR_API_KEY`, or unset it and run `{name} login`"
    else:
        message = "The Cursor CLI is not signed in."
        action = (
            f"Run `{name} login` as the user that runs the server, or set `CURSOR_API_KEY` for the "
            "server"
        )
    return CLI.signed_out(found, message, action)


def _incompatible(candidate: Candidate) -> Diagnostic:
    found = Diagnostic(NAME, installed=True, version=candidate.version, program=candidate.program)
    return CLI.unfit(found, str(candidate.problem))


def _option(model: texts.Model, free: bool) -> dict[str, Any]:
    option: dict[str, Any] = {"value": model.id, "label": model.label}
    if free and not model.is_router:
        option["locked"] = True
        option["locked_reason"] = "Not part of this account's free plan."
    return option


def _entry(models: list[dict[str, Any]], source: str, default: str) -> dict[str, Any]:
    return {
        "models": models,
        "efforts": [],
        "model_source": source,
        "effort_source": "none",
        "default_model": default,
        "default_effort": None,
        "permission_modes": list(CURSOR_PERMISSION_MODES),
        "default_permission_mode": CURSOR_PERMISSION_MODES[0],
    }


def _check_size(text: str, what: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > ARGUMENT_BYTES:
        raise PromptTooLarge(
            f"{what} has {size} bytes; the Cursor CLI can be given {ARGUMENT_BYTES} at most.",
            size=size,
            limit=ARGUMENT_BYTES,
        )
