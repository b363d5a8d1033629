"""Which parser reads which CLI."""

from agentsdock.streams.neutral import ParserSpec, StreamParser


def make_parser(backend: str, spec: ParserSpec) -> StreamParser:
    """A parser for one turn of ``backend``; only that CLI's module is imported.

    Raises ValueError for a backend that there is not.
    """
    match backend:
        case "cursor":
            from agentsdock.streams.cursor import CursorParser

            return CursorParser(spec)
        case "claude":
            from agentsdock.streams.claude import ClaudeParser

            return ClaudeParser(spec)
        case "codex":
            from agentsdock.streams.codex import CodexParser

            return CodexParser(spec)
        case _:
            raise ValueError(f"there is no backend {backend!r}")
