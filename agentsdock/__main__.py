"""``python -m agentsdock`` is the ``agentsdock`` command."""

from agentsdock.cli.main import main

if __name__ == "__main__":
    main()
