"""How much a model thinks before it answers: which efforts go with which model, where known."""

CLAUDE_EFFORTS = ("low", "medium", "high", "xhigh", "max")
CODEX_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
_USUAL = ("low", "medium", "high", "xhigh")
CODEX_MODELS = {
    "gpt-5.6-sol": (*_USUAL, "max", "ultra"),
    "gpt-5.6-terra": (*_USUAL, "max", "ultra"),
    "gpt-5.6-luna": (*_USUAL, "max"),
    "gpt-5.5": _USUAL,
    "gpt-5.4": _USUAL,
    "gpt-5.4-mini": _USUAL,
}
_EXTRA_HIGH = ("extra high", "extra-high", "extra_high")


def spelled(backend: str, effort: str | None) -> str | None:
    """An effort in the one spelling that is kept; None for a blank one."""
    found = (effort or "").strip().lower()
    return "xhigh" if backend == "codex" and found in _EXTRA_HIGH else found or None


def choices(backend: str, model: str | None) -> tuple[str, ...] | None:
    """The efforts that go with a model; None where nobody knows, so that any may."""
    return CODEX_MODELS.get(model or "", CODEX_EFFORTS) if backend == "codex" else None
