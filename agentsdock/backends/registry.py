"""The CLIs that this server runs."""

from agentsdock.backends.cursor_agent_client import CursorAgentClient
from agentsdock.backends.protocol import Backend
from agentsdock.config import Settings


def make_backends(settings: Settings) -> dict[str, Backend]:
    """Backend name to backend; a name of the contract that is absent cannot run turns."""
    cursor: Backend = CursorAgentClient(settings)
    return {cursor.name: cursor}
