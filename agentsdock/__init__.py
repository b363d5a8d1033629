"""agentsdock runs coding-agent CLIs as supervised chat turns."""

__version__ = "0.1.0.dev0"
