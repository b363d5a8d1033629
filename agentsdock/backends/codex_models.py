"""The models of Codex: what ``codex debug models`` lists, and what stands in for it.  Pure."""

from typing import Any

import msgspec
from attrs import frozen

from agentsdock.backends.efforts import CODEX_MODELS
from agentsdock.backends.options import SERVER_DEFAULT, effort_options, options

MAX_MODELS = 1000
DEFAULT = "gpt-5.5"


@frozen
class _Level:
    effort: str


@frozen
class _Model:
    slug: str
    display_name: str = ""
    visibility: str = "list"
    priority: float = 0.0
    default_reasoning_level: str | None = None
    supported_reasoning_levels: tuple[_Level, ...] = ()


@frozen
class _Models:
    models: tuple[_Model, ...]


def listed(text: str, source: str) -> dict[str, Any] | None:
    """The catalogue entry, the preferred model first; None for what is no such list.

    Hidden models are ones that the CLI chooses by itself.
    """
    try:
        told = msgspec.json.decode(text, type=_Models)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    shown = [model for model in told.models if model.visibility == "list" and model.slug.strip()]
    if not shown:
        return None
    shown = sorted(shown, key=lambda model: model.priority)[:MAX_MODELS]
    first = shown[0]
    labels = {model.slug: model.display_name or model.slug for model in shown}
    efforts = {
        model.slug: tuple(level.effort for level in model.supported_reasoning_levels)
        for model in shown
    }
    return _entry(labels, efforts, first.slug, first.default_reasoning_level, source)


def built_in(source: str) -> dict[str, Any]:
    labels = {model: _label(model) for model in CODEX_MODELS}
    return _entry(labels, CODEX_MODELS, DEFAULT, CODEX_MODELS[DEFAULT][-1], source)


def _entry(
    labels: dict[str, str],
    efforts: dict[str, tuple[str, ...]],
    default: str,
    effort: str | None,
    source: str,
) -> dict[str, Any]:
    tables = {model: effort_options(values) for model, values in efforts.items()}
    return {
        "models": [SERVER_DEFAULT, *options(labels)],
        "efforts": tables[default],
        "model_efforts": tables,
        "model_source": source,
        "effort_source": source,
        "default_model": default,
        "default_effort": effort,
    }


def _label(model: str) -> str:
    stem, number, *rest = model.split("-")
    return " ".join([f"{stem.upper()}-{number}", *(part.capitalize() for part in rest)])
