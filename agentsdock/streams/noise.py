"""What stands in a CLI's output and is not its protocol: terminal noise, prose, bad escapes."""

import re

from agentsdock.model.codes import Code
from agentsdock.streams.neutral import Fault, Unusable

_PROSE_CHARS = 200
_PROSE_BYTES = 4096

# ECMA-48: CSI, OSC, the other strings, two-byte escapes; then the single control characters
# that JSON knows nothing of.
_SEQUENCE = (
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"
    rb"|[PX^_][^\x1b]*\x1b\\"
    rb"|[ -/]*[0-OQ-WYZ\\`-~])"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]"
)
_sequence = re.compile(_SEQUENCE)
_noise = re.compile(rb"(?:" + _SEQUENCE + rb"|[ \t\r\n])*+")
_control_character = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_escape = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)
_half = re.compile(rb"\\u[dD][89a-fA-F]")
_not_letters = re.compile(r"[^a-z]+")
_PROMPTS = (
    "request approval",
    "approval required",
    "waiting for approval",
    "permission request",
    "requires confirmation",
    "approve this command",
    "run this command",
    "not in allowlist",
    "workspace trust",
)


def strip_control_sequences(line: bytes) -> tuple[bytes, int]:
    """The line without the terminal control sequences around it, and how many there were.

    Nothing between the ends is touched: valid JSON holds no raw control character, so what
    is left with one is not JSON.
    """
    if line.startswith(b"{") and line.endswith(b"}") and b"\x1b" not in line:
        return line, 0
    matched = _noise.match(line)
    start = matched.end() if matched else 0
    control = _control_character.search(line, start)
    stop = control.start() if control else len(line)
    if not _noise.fullmatch(line, stop):
        stop = len(line)
    dropped = sum(1 for _ in _sequence.finditer(line, 0, start))
    dropped += sum(1 for _ in _sequence.finditer(line, stop))
    return line[start:stop], dropped


def replace_lone_surrogates(line: bytes) -> bytes:
    """JSON text in which each escape of half a character is an escape of U+FFFD."""
    if not _half.search(line):
        return line
    return _escape.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], line)


def unusable_line(line: bytes) -> Fault:
    """The fault of a line that is not one JSON object: a prompt for a person, or just bad."""
    prose = _sequence.sub(b"", line[:_PROSE_BYTES]).decode(errors="replace").strip()
    words = _not_letters.sub(" ", prose.lower())
    shown = None if prose.startswith("{") else prose[:_PROSE_CHARS]
    told = Unusable(size=len(line), prose=shown)
    if any(prompt in words for prompt in _PROMPTS):
        return Fault(
            Code.APPROVAL_REQUIRED,
            "the CLI asks for an approval on its output, which nobody can give there",
            told,
        )
    return Fault(
        Code.BAD_LINE, f"a line of output is not one JSON object ({len(line)} bytes)", told
    )
