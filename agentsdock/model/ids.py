"""Identifiers: how each kind is made and what a valid one looks like."""

import re
import secrets

SESSION_ID = re.compile(r"sess_[0-9a-f]{16}\Z")
RUN_ID = re.compile(r"run_[0-9a-f]{16}\Z")
QUEUED_ID = re.compile(r"queued_[0-9a-f]{16}\Z")
PROVIDER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,255}\Z")
"""What a CLI may call its own session: bounded, printable, safe as an argument."""


def new_session_id() -> str:
    return f"sess_{secrets.token_hex(8)}"


def new_run_id() -> str:
    return f"run_{secrets.token_hex(8)}"


def new_queued_id() -> str:
    return f"queued_{secrets.token_hex(8)}"


def new_event_id() -> str:
    return f"evt_{secrets.token_hex(8)}"
