"""Drives an agent-chat server over HTTP and WebSocket, with a fake agent as its CLI."""
