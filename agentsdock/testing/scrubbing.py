"""Takes out of a recording what is somebody's own, and puts stand-ins in its place.

The same text always becomes the same stand-in, so ids still match each other.  JSON stays as it
was written but for the strings that change: order, spaces, doubled keys and escapes are facts
about a CLI.
"""

import base64
import functools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping

from attrs import define, field, frozen

_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"

_COMMON = (
    "admin agent build builder claude code codex cursor debian host local localhost node python "
    "root runner test ubuntu user work worker workspace"
)
COMMON_NAMES = frozenset(_COMMON.split())
"""Names of accounts and hosts that say nothing and are ordinary words too."""
_LEAST_NAME = 4
_PIECES = frozenset({"text", "delta", "thinking", "partial_json"})
"""Keys under which CLIs tell a text in pieces."""
_OPEN_PLACES = (
    "bin|boot|dev|etc|lib|lib64|proc|run|sbin|sys|usr|opt/homebrew|nix/store"
    r"|home|Users|workspace|workspace-\d+|state|place-\d+"
)
"""Folders that are the same everywhere, or stand-ins; homes have a rule of their own."""


@frozen
class Rule:
    """``pattern`` finds one kind of private text; its group ``x``, or all of it, is replaced.

    ``stand_in`` makes the N-th replacement of a text; it must not be found by any rule.
    """

    name: str
    pattern: re.Pattern[str]
    stand_in: Callable[[str, int], str]


def _rule(name: str, pattern: str, stand_in: Callable[[str, int], str], flags: int = 0) -> Rule:
    return Rule(name, re.compile(pattern, flags), stand_in)


_SECRET = "secret-"  # noqa: S105
_FRAGMENT = 10
"""So many characters of a secret are too many."""


def _secret(_: str, n: int) -> str:
    return f"{_SECRET}{n}"


def _prefixed(text: str, n: int) -> str:
    return f"{text.partition('_')[0]}_{n:04d}"


def _number(text: str, n: int) -> str:
    """As long as the text, and a number to see."""
    return f"{n:0{len(text)}d}"


_NAMED = _rule(
    "named secret",
    r"(?i:key|auth|token|secret|credentials?|cookie)[\"'\\]*\s*[=:]\s*[\"'\\]*"
    r"(?P<x>(?!secret-\d)(?=[\w+/=.~-]*[0-9])(?=[\w+/=.~-]*[A-Za-z])[\w+/=.~-]{8,})",
    _secret,
)

RULES = (
    _rule(
        "private key",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        _secret,
        re.DOTALL,
    ),
    _rule("web token", r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", _secret),
    _rule(
        "API key",
        r"(?<![A-Za-z0-9])(?:sk-|pk-|rk_live_|sk_live_|sk_test_|key-|xox[a-z]-|gh[pousr]_"
        r"|github_pat_|glpat-|hf_|npm_|pypi-|dop_v1_|shpat_|AIza|ya29\.|SG\.)[\w.-]{12,}",
        _secret,
    ),
    _rule("AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", _secret),
    _rule("bearer", r"(?i:\b(?:bearer|basic)\s+)(?P<x>(?!secret-\d)[\w+/=.~-]{8,})", _secret),
    _rule("password in an address", r"://(?P<x>(?!secret-\d+@)[^/\s:@\"']+:[^/\s@\"']+)@", _secret),
    _NAMED,
    _rule(
        "password",
        r"(?i:passw(?:or)?d|\bpwd)[\"'\\]*[=:][\"'\\ ]*"
        r"(?P<x>(?!secret-\d)(?=[A-Za-z]*[^A-Za-z\s\"'\\,;}{])[^\s\"'\\,;}{]{6,})",
        _secret,
    ),
    _rule(
        "mail address",
        r"[\w.+-]+@(?!example\.(?:com|org)\b)[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}",
        lambda _, n: f"person-{n}@example.com",
    ),
    _rule(
        "UUID",
        r"(?<![0-9A-Fa-f])(?!00000000-0000-4000-8000-)"
        r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?![0-9A-Fa-f])",
        lambda _, n: f"00000000-0000-4000-8000-{n:012d}",
    ),
    _rule(
        "id",
        r"(?<![A-Za-z0-9])(?:msg|toolu|srvtoolu|tool|call|req|resp|fc|ctc|rs|item|run|sess|evt"
        r"|file|queued|chatcmpl|thread|task)_(?!\d{4,6}(?![A-Za-z0-9]))(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{6,}",
        _prefixed,
    ),
    _rule(
        "hash",
        r"(?<![0-9A-Za-z])(?!0{6})(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{32,}(?![0-9A-Za-z])",
        _number,
    ),
    _rule(
        "opaque text",
        r"(?<![\w+/=])(?=[\w+/]*[0-9])(?=[\w+/]*[a-z])(?=[\w+/]*[A-Z])[A-Za-z0-9+_]"
        r"[A-Za-z0-9+/_-]{47,}={0,2}",
        lambda _, n: f"opaque-{n}",
    ),
    _rule(
        "address",
        r"(?<![\w.])(?!127\.|0\.0\.0\.0|192\.0\.2\.)(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}"
        r"(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.]*\d)",
        lambda _, n: f"192.0.2.{n}",
    ),
    _rule(
        "host name",
        r"(?<![\w.-])(?:[A-Za-z0-9-]+\.)+(?:local|lan|internal|corp|intranet|home\.arpa)\b(?!\()",
        lambda _, n: f"host-{n}.example.com",
    ),
    _rule(
        "home folder",
        r"(?<![\w.])(?:/home/|/Users/|/var/home/)(?!user(?![\w.-]))(?P<x>[\w.-]+)",
        lambda _, n: "user" if n == 1 else f"user-{n}",
    ),
    _rule(
        "folder",
        rf"(?<![\w./~)\]-])(?P<x>/(?!(?:{_OPEN_PLACES})(?![\w.-]))[\w.@+-]+(?:/[\w.@+-]+)+?)"
        r"(?=/[\w@+-]+\.\w{1,8}(?![\w./])|(?![\w.@+/-]))",
        lambda _, n: f"/place-{n}",
    ),
)


@define
class Scrubber:
    """Replaces the ``private`` texts, which have their stand-ins, and whatever the rules find.

    ``replaced`` maps each text that was found to its stand-in.
    """

    private: dict[str, str] = field(factory=dict)
    replaced: dict[str, str] = field(factory=dict, init=False)
    _counts: dict[str, int] = field(factory=dict, init=False)
    _known: re.Pattern[str] | None = field(default=None, init=False)

    def stream(self, data: bytes) -> bytes:
        """Everything a CLI wrote; bytes that are no text stay as they are.

        What is found anywhere, as the name in a home folder, is then replaced everywhere.
        """
        self._know({})
        self._lines(data)
        for text in _joined(data):
            self.text(text)
        self._know(self.replaced)
        return self._lines(data)

    def _know(self, learned: dict[str, str]) -> None:
        names = {text: to for text, to in learned.items() if is_telling(text)}
        self.private = {text.lower(): to for text, to in {**names, **self.private}.items()}
        words = sorted(self.private, key=len, reverse=True)
        pattern = "|".join(_WORD.format(re.escape(word)) for word in words)
        self._known = re.compile(pattern, re.IGNORECASE) if words else None

    def _lines(self, data: bytes) -> bytes:
        return b"\n".join(_encoded(self.line(_decoded(line))) for line in data.split(b"\n"))

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(self._replace_known, text)
        for rule in RULES:
            text = rule.pattern.sub(functools.partial(self._replace, rule), text)
        return text

    def line(self, line: str) -> str:
        """A line of JSON, or of anything: strings as what they mean, the rest as it stands."""
        done: list[str] = []
        end = 0
        for literal in _STRING.finditer(line):
            done += [self.text(line[end : literal.start()]), self._literal(literal[0])]
            end = literal.end()
        line = "".join([*done, self.text(line[end:])])
        # A key and its value are two strings, and only together a secret.
        return _NAMED.pattern.sub(functools.partial(self._replace, _NAMED), line)

    def _literal(self, literal: str) -> str:
        try:
            text = json.loads(literal)
        except ValueError:
            return self.text(literal)
        scrubbed = self.text(text)
        if scrubbed == text:
            return literal
        return json.dumps(scrubbed, ensure_ascii="\\u" in literal)

    def _replace_known(self, found: re.Match[str]) -> str:
        stand_in = self.private.get(found[0].lower(), "private")
        self.replaced[found[0]] = stand_in
        return stand_in

    def _replace(self, rule: Rule, found: re.Match[str]) -> str:
        group = "x" if "x" in rule.pattern.groupindex else 0
        text = found[group]
        if text not in self.replaced:
            self._counts[rule.name] = n = self._counts.get(rule.name, 0) + 1
            self.replaced[text] = rule.stand_in(text, n)
        start, end = (at - found.start() for at in found.span(group))
        return found[0][:start] + self.replaced[text] + found[0][end:]


@frozen
class Leak:
    """Private text that is still there; ``shown`` begins as it does, and no more."""

    rule: str
    line: int
    shown: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}, {self.shown}"


def find_leaks(data: bytes, replaced: Mapping[str, str]) -> list[Leak]:
    """What of the ``replaced`` texts is left in any spelling, and what a rule still finds.

    Texts that come in pieces are looked at as a whole too, and of a secret no piece may be left.
    """
    spelled = {one: text for text, to in replaced.items() for one in _spellings(text, to)}
    leaks = []
    for number, text in _texts(data):
        in_any_case = text.lower()
        leaks += [
            Leak("private text", number, _shown(word))
            for one, word in spelled.items()
            if one in text or (is_telling(word) and word.lower() in in_any_case)
        ]
        leaks += [
            Leak(rule.name, number, _shown(found[0]))
            for rule in RULES
            for found in rule.pattern.finditer(text)
        ]
    return list(dict.fromkeys(leaks))


def is_telling(text: str) -> bool:
    """Whether a name is worth replacing wherever it stands."""
    return len(text) >= _LEAST_NAME and text.lower() not in COMMON_NAMES


def _texts(data: bytes) -> Iterator[tuple[int, str]]:
    """(line, text): every line, every string in it, and the texts that came in pieces."""
    number = 0
    for number, raw in enumerate(data.split(b"\n"), start=1):
        yield number, _decoded(raw)
        for _, text in _strings(_json(raw)):
            yield number, text
    for text in _joined(data):
        yield number, text


def _joined(data: bytes) -> Iterator[str]:
    pieces: dict[str, list[str]] = {key: [] for key in _PIECES}
    for raw in data.split(b"\n"):
        for key, text in _strings(_json(raw)):
            if key in pieces:
                pieces[key].append(text)
    return ("".join(texts) for texts in pieces.values())


def _json(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _strings(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield key, value
        case dict():
            for name, one in value.items():
                yield from _strings(one, str(name))
                yield "", str(name)
        case list():
            for one in value:
                yield from _strings(one, key)


def _spellings(word: str, stand_in: str) -> set[str]:
    if not is_telling(word):
        return set()
    if stand_in.startswith(_SECRET):
        return {word[at : at + _FRAGMENT] for at in range(max(1, len(word) - _FRAGMENT + 1))}
    data = _encoded(word)
    found = {
        word,
        json.dumps(word)[1:-1],
        urllib.parse.quote(word),
        urllib.parse.quote(word, safe=""),
        data.hex(),
    }
    for shift in range(3):
        # Of base64 only the middle is the same wherever the word stands.
        inner = base64.b64encode(b"\0" * shift + data).decode().rstrip("=")
        found.add(inner[(0, 2, 3)[shift] : len(inner) - 1])
    if "/" in word:
        found.add(dashed(word))
    return {one for one in found if len(one) >= _LEAST_NAME}


def dashed(path: str) -> str:
    """As Claude Code names a folder after a path."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)


def _shown(text: str) -> str:
    return f"{text[:3]}… ({len(text)} characters)"


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass" if _lone(text) else "surrogateescape")


def _lone(text: str) -> bool:
    return any("\ud800" <= char < "\udc80" or "\udcff" < char <= "\udfff" for char in text)
