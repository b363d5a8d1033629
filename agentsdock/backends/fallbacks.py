"""Catalogue entries of the CLIs that this server knows of but does not run yet.

Clients reject a catalogue in which ``claude`` or ``codex`` offers no model, so both always
have a list; the diagnostic says that they cannot be used.
"""

from typing import Any

from agentsdock.backends.efforts import CODEX_MODELS
from agentsdock.backends.protocol import Diagnostic
from agentsdock.model.times import iso_now

_SOURCE = "Built-in list"
_DEFAULT = {"value": "", "label": "Server default"}

_CLAUDE_MODELS = {
    "fable": "Fable",
    "claude-fable-5": "Claude Fable 5",
    "sonnet": "Sonnet",
    "opus": "Opus",
    "opus[1m]": "Opus (1M context)",
    "claude-opus-4-8": "Claude Opus 4.8",
    "claude-opus-4-8[1m]": "Claude Opus 4.8 (1M context)",
    "haiku": "Haiku",
}
_CLAUDE_EFFORTS = ("low", "medium", "high", "xhigh", "max")

_CODEX_DEFAULT = "gpt-5.5"

_NAMES = {"claude": "Claude Code", "codex": "Codex"}


def diagnostic(name: str) -> Diagnostic:
    """Of ``claude`` or ``codex``: never ready.  Whether the CLI is installed is not looked at."""
    return Diagnostic(
        name,
        status="missing",
        message=f"This server does not run {_NAMES[name]} yet.",
        action="Choose Cursor as the backend of this chat.",
        checked_at=iso_now(),
    )


def entry(name: str) -> dict[str, Any]:
    """Of ``claude`` or ``codex``, less ``diagnostic`` and ``available``."""
    return _claude() if name == "claude" else _codex()


def _claude() -> dict[str, Any]:
    return {
        "models": [_DEFAULT, *_options(_CLAUDE_MODELS)],
        "efforts": _efforts(_CLAUDE_EFFORTS),
        "model_source": _SOURCE,
        "effort_source": _SOURCE,
        "default_model": None,
        "default_effort": None,
    }


def _codex() -> dict[str, Any]:
    tables = {model: _efforts(efforts) for model, efforts in CODEX_MODELS.items()}
    return {
        "models": [_DEFAULT, *_options({model: _codex_label(model) for model in tables})],
        "efforts": tables[_CODEX_DEFAULT],
        "model_efforts": tables,
        "model_source": _SOURCE,
        "effort_source": _SOURCE,
        "default_model": _CODEX_DEFAULT,
        "default_effort": CODEX_MODELS[_CODEX_DEFAULT][-1],
    }


def _codex_label(model: str) -> str:
    stem, number, *rest = model.split("-")
    return " ".join([f"{stem.upper()}-{number}", *(part.capitalize() for part in rest)])


def _options(labels: dict[str, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in labels.items()]


def _efforts(values: tuple[str, ...]) -> list[dict[str, str]]:
    labels = {value: "Extra high" if value == "xhigh" else value.capitalize() for value in values}
    return [_DEFAULT, *_options(labels)]
