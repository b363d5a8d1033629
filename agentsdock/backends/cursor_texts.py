"""What the Cursor CLI prints about itself, read strictly.

Pure functions from text to facts.  None of them raises, whatever the text: what cannot be
read is absent, unclear or missing, and the caller decides what that means.
"""

import re
from enum import StrEnum

from attrs import frozen

from agentsdock.backends.plain_text import plain

VERSION_CHARS = 120
LABEL_CHARS = 200
MAX_MODELS = 1000

_FLAGS = re.compile(r"-{1,2}[A-Za-z][\w-]*(?:(?:, ?|\|| )-{1,2}[A-Za-z][\w-]*)*")
_CHOICES = re.compile(r'choices:((?:\s*"[^"]*",?)+)')
_RELEASE = re.compile(r"\b\d{4}\.\d{2}\.\d{2}(?:-[\w.+-]+)?")
_SIGNED_OUT = re.compile(
    r"not (?:logged|signed) in|not authenticated|\bunauthenticated\b|authentication required"
    r"|(?:login|sign-?in) required|api key is (?:not valid|invalid)|invalid api key"
    r"|authenticated[\"']?[ \t]*[:=][ \t]*[\"']?false",
    re.IGNORECASE,
)
_SIGNED_IN = re.compile(
    r"^[^\w\n]*logged in as[ \t]+\S|^[^\w\n]*authenticated[^\w\n]*$"
    r"|authenticated[\"']?[ \t]*[:=][ \t]*[\"']?true",
    re.IGNORECASE | re.MULTILINE,
)
_OTHER_TITLE = re.compile(r"^[^\w\n]*about [^\n]{1,80} cli\b", re.IGNORECASE | re.MULTILINE)
_VERSION_ROW = re.compile(
    r"^[ \t\"]*cli ?version[ \t\":]+\d{4}\.\d{2}\.\d{2}\b", re.IGNORECASE | re.MULTILINE
)
_TIER = re.compile(r'subscription ?tier"?[ \t]*:?[ \t]*"?([^",}\n]+)', re.IGNORECASE)
_FREE_TIERS = frozenset({"free", "hobby", "individual free"})
_MODEL = re.compile(r"([A-Za-z0-9][\w.:/+@,=\[\]-]{0,199})[ \t]+-[ \t]+(\S.*)")
_MARKER = re.compile(r"\s*\(([^()]*)\)\Z")


@frozen
class CommandLine:
    """How this build spells what a turn needs, and what of it does not exist at all."""

    missing: tuple[str, ...]
    print_flag: str = "-p"
    plan: tuple[str, ...] = ("--mode", "plan")
    listing: tuple[str, ...] = ("--list-models",)


@frozen
class _Option:
    flags: tuple[str, ...]
    takes: str
    description: str

    @property
    def values(self) -> frozenset[str]:
        """What the option accepts, as far as its own entry tells.

        A closed list wins over alternatives parted by bars, those over bare words.
        """
        text = f"{self.takes} {self.description}"
        if closed := _CHOICES.search(text):
            return frozenset(re.findall(r'"([^"]*)"', closed[1]))
        parts = [re.findall(r"[\w-]+", part) for part in text.split("|")]
        if len(parts) == 1:
            return frozenset(parts[0])
        return frozenset(
            [words[-1] for words in parts[:-1] if words]
            + [words[0] for words in parts[1:] if words]
        )


def read_help(text: str) -> CommandLine:
    """Which of the needed options exist as options; words in a description do not count."""
    sections = _sections(text)
    options = {flag: option for option in _options(sections) for flag in option.flags}
    commands = {
        word
        for term, _ in sections.get("commands", ())
        for word in re.findall(r"[\w-]+", re.split(r"[\[<]", term)[0])
    }
    printing = options.get("--print") or options.get("-p")
    if printing is not None and "--print" not in printing.flags and printing.takes:
        printing = None
    plan = _plan_spelling(options)
    listing = _listing_spelling(options, commands)
    output = options.get("--output-format")
    found = {
        "print mode": printing,
        "--output-format": output,
        "stream-json": output is None or "stream-json" in output.values,
        **{flag: options.get(flag) for flag in ("--resume", "--model", "--trust", "--force")},
        "plan mode": plan,
        "a model listing": listing,
    }
    return CommandLine(
        missing=tuple(name for name, there in found.items() if not there),
        print_flag="-p" if printing is None or "-p" in printing.flags else "--print",
        plan=plan or CommandLine(()).plan,
        listing=listing or CommandLine(()).listing,
    )


def _plan_spelling(options: dict[str, _Option]) -> tuple[str, ...] | None:
    if "--mode" in options and "plan" in options["--mode"].values:
        return ("--mode", "plan")
    return ("--plan",) if "--plan" in options else None


def _listing_spelling(options: dict[str, _Option], commands: set[str]) -> tuple[str, ...] | None:
    if "--list-models" in options:
        return ("--list-models",)
    return ("models",) if "models" in commands else None


def _options(sections: dict[str, list[tuple[str, str]]]) -> list[_Option]:
    found = []
    for term, description in sections.get("options", ()):
        if flags := _FLAGS.match(term):
            names = tuple(re.findall(r"-{1,2}[A-Za-z][\w-]*", flags[0]))
            found.append(_Option(names, term[flags.end() :].strip(" ="), description))
    return found


def _sections(text: str) -> dict[str, list[tuple[str, str]]]:
    """Heading in lower case -> its (term, description) entries, wrapped descriptions joined.

    The first entry of a section sets the indentation of all; what stands further in goes on
    with the description of the entry above it.
    """
    sections: dict[str, list[tuple[str, str]]] = {}
    entries: list[tuple[str, str]] = []
    indent: int | None = None
    for line in plain(text).split("\n"):
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if not stripped:
            continue
        if depth == 0:
            heading = stripped[:-1].lower() if stripped.endswith(":") else ""
            entries, indent = sections.setdefault(heading, []), None
        elif indent is None or depth <= indent:
            indent = depth
            term, *rest = re.split(r"\s{2,}", stripped, maxsplit=1)
            entries.append((term, rest[0] if rest else ""))
        else:
            term, description = entries[-1]
            # Narrow terminals break words at their hyphens.
            gap = "" if description.endswith("-") else " "
            entries[-1] = (term, f"{description}{gap}{stripped}")
    return sections


def is_cursor_agent(about: str) -> bool:
    """Whether ``about`` was printed by the Cursor agent: others use the name ``agent`` too."""
    text = plain(about)
    if "about cursor cli" in text.lower():
        return True
    return not _OTHER_TITLE.search(text) and _VERSION_ROW.search(text) is not None


def read_version(stdout: str, stderr: str = "") -> str | None:
    """The release, else the first line that is not blank, cleaned and cut to 120 characters."""
    lines = [line.strip() for line in plain(f"{stdout}\n{stderr}").split("\n") if line.strip()]
    for line in lines:
        if release := _RELEASE.search(line):
            return release[0][:VERSION_CHARS]
    if not lines:
        return None
    return re.sub(r"[^A-Za-z0-9._+()\- /]", "", lines[0]).strip()[:VERSION_CHARS] or None


class SignIn(StrEnum):
    IN = "in"
    OUT = "out"
    UNCLEAR = "unclear"


def read_sign_in(text: str) -> SignIn:
    """Only the CLI's own clear words count; who is signed in is not looked at."""
    text = plain(text)
    if _SIGNED_OUT.search(text):
        return SignIn.OUT
    return SignIn.IN if _SIGNED_IN.search(text) else SignIn.UNCLEAR


def known_sign_in_trouble(text: str) -> str | None:
    """Our words for a trouble that is recognised.  The CLI's own may name an account."""
    if re.search(r"key(?:chain| ?ring)\b[^\n]{0,80}\blocked", plain(text), re.IGNORECASE):
        return "its keychain is locked"
    return None


@frozen
class Model:
    """One line of the model list."""

    id: str
    label: str
    is_default: bool = False
    is_current: bool = False

    @property
    def is_router(self) -> bool:
        return self.id == "auto"


def read_models(text: str) -> tuple[Model, ...]:
    """The models in the CLI's order, each id once, at most 1000."""
    models: dict[str, Model] = {}
    for block in re.split(r"\n[ \t]*\n", plain(text)):
        if block.lstrip().startswith("Tip:"):
            continue
        for line in block.split("\n"):
            model = _model(line.strip())
            if model is not None and len(models) < MAX_MODELS:
                models.setdefault(model.id, model)
    return tuple(models.values())


def _model(line: str) -> Model | None:
    entry = _MODEL.fullmatch(line)
    if entry is None:
        return None
    label = entry[2].strip()
    marker = _MARKER.search(label)
    words = set(re.findall(r"\w+", marker[1])) if marker else set()
    if marker and words & {"default", "current"}:
        label = label[: marker.start()].strip()
    return Model(
        id=entry[1],
        label=label[:LABEL_CHARS] or entry[1],
        is_default="default" in words,
        is_current="current" in words,
    )


def default_model(models: tuple[Model, ...]) -> Model:
    """The one marked as default, else the first.  ``models`` is not empty."""
    return next((model for model in models if model.is_default), models[0])


def read_tier(about: str) -> str | None:
    """The account's plan in the CLI's own words."""
    row = _TIER.search(plain(about))
    tier = row[1].strip() if row else ""
    return tier if tier and tier != "null" else None


def is_free(tier: str | None) -> bool:
    """Only an explicitly free plan is: a new name must not lock paying users out."""
    return re.sub(r"[^a-z0-9]+", " ", (tier or "").lower()).strip() in _FREE_TIERS
