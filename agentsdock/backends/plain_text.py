"""What a CLI printed, as text that a person may be shown.  Pure."""

import re

REASON_CHARS = 200

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, erasing, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[@-Z\\-_]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_ADDRESS = re.compile(r"[^\s<>@]+@[^\s<>@]+")
_QUOTED_PATH = re.compile(r"(['\"`])[^'\"`]*/[^'\"`]*\1")
_PATH = re.compile(r"(?<![\w./])~?/[^\s'\"`,;:)]+")


def plain(text: str) -> str:
    """The text without terminal control sequences; each line ends with LF."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def public_reason(text: str) -> str:
    """The first line, without file paths and addresses, for a message that clients see."""
    lines = (line.strip() for line in plain(text).split("\n"))
    line = next((line for line in lines if line), "")[: 2 * REASON_CHARS]
    line = _ADDRESS.sub("<address>", _PATH.sub("<path>", _QUOTED_PATH.sub("<path>", line)))
    return line[:REASON_CHARS].rstrip(".")
