"""The CLIs that this server runs."""

from agentsdock.backends.claude_code import ClaudeCode
from agentsdock.backends.codex_exec import CodexExec
from agentsdock.backends.cursor_agent_client import CursorAgentClient
from agentsdock.backends.protocol import Backend
from agentsdock.config import Settings


def make_backends(settings: Settings) -> dict[str, Backend]:
    """Backend name to backend, in the order in which they are listed."""
    made: list[Backend] = [ClaudeCode(settings), CodexExec(settings), CursorAgentClient(settings)]
    return {backend.name: backend for backend in made}
