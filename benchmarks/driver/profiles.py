"""How each kind of server is started.  Names in braces are filled in at the start."""

from attrs import field, frozen


@frozen
class Profile:
    """``command`` starts the server, ``module`` is what its start imports, ``crowded_lines`` a
    load that it can carry beside many chats.
    """

    command: str
    module: str
    backend: str
    environ: dict[str, str] = field(factory=dict)
    events_per_line: int = 1
    crowded_lines: int = 20_000


COMMON = {
    "AGENTSDOCK_STATE_DIR": "{state}",
    "AGENTSDOCK_AGENT_TOKEN": "{token}",
    "AGENTSDOCK_AGENT_CWD": "{ws}",
    "AGENTSDOCK_MAX_ACTIVE_AGENT_RUNS": "{cap}",
}

PROFILES = {
    "plain": Profile(
        command="{python} -m agentsdock serve --port {port}",
        module="agentsdock.app",
        backend="cursor",
        environ={
            **COMMON,
            "AGENTSDOCK_MIN_START_AVAILABLE_MEM_MB": "0",
            "CURSOR_BIN": "{bin}/cursor-agent",
        },
    ),
    "reference": Profile(
        command="{python} agent_server.py serve --bind 127.0.0.1 --port {port}",
        module="agent_server",
        backend="claude",
        environ={
            **COMMON,
            "AGENTSDOCK_AGENT_PORT": "{port}",
            "AGENTSDOCK_CLAUDE_TRANSPORT": "print",
            "AGENTSDOCK_CODEX_TRANSPORT": "exec",
            "CLAUDE_BIN": "{bin}/claude",
            "CODEX_BIN": "{bin}/codex",
        },
        events_per_line=2,
        crowded_lines=2_000,
    ),
}
