"""The tables, as numbered steps.  A step that was released is never edited, only followed.

Every chat has a number that is never used again.  What belongs to a chat hangs on that number,
so a deleted chat is gone as soon as its ``sessions`` row is, and its rows can leave later.
"""

from collections.abc import Sequence

import apsw

from agentsdock.store.engine import transaction

Migration = Sequence[str]

_FIRST: Migration = (
    """
    CREATE TABLE sessions (
        chat INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        body BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE heads (
        chat INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        at TEXT,
        type TEXT,
        agent_seq INTEGER NOT NULL,
        agent_at TEXT,
        agent_type TEXT,
        touched_at TEXT
    ) STRICT
    """,
    # A rowid table: rows of over a thousand bytes would leave the pages of a WITHOUT ROWID
    # one for overflow pages of their own, at twice the cost.
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        chat INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        type TEXT NOT NULL,
        run_id TEXT,
        body BLOB NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX events_by_seq ON events (chat, seq)",
    # Only for the few rows that pages of visible events leave out: an index of all types would
    # double the cost of an append when many chats are live.
    "CREATE INDEX events_raw ON events (chat, seq) WHERE type = 'raw_event'",
    """
    CREATE UNIQUE INDEX one_terminal_event ON events (chat, run_id)
    WHERE type IN ('turn_finished', 'turn_stopped')
    """,
    """
    CREATE TABLE queue (
        id TEXT NOT NULL UNIQUE,
        chat INTEGER NOT NULL,
        position REAL NOT NULL,
        body BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX queue_order ON queue (chat, position)",
    """
    CREATE TABLE runs (
        id TEXT NOT NULL UNIQUE,
        chat INTEGER NOT NULL,
        open INTEGER NOT NULL,
        owner TEXT NOT NULL,
        fence INTEGER NOT NULL,
        first_seq INTEGER NOT NULL,
        last_seq INTEGER,
        body BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX runs_by_chat ON runs (chat)",
    "CREATE UNIQUE INDEX one_open_run ON runs (chat) WHERE open",
    """
    CREATE TABLE answers (
        scope TEXT NOT NULL,
        key TEXT NOT NULL,
        chat INTEGER NOT NULL,
        request_hash TEXT NOT NULL,
        status INTEGER NOT NULL,
        body BLOB NOT NULL,
        expires_at REAL NOT NULL,
        UNIQUE (scope, key)
    ) STRICT
    """,
    "CREATE INDEX answers_by_expiry ON answers (expires_at)",
    "CREATE INDEX answers_by_chat ON answers (chat)",
    """
    CREATE TABLE dropped (
        chat INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        purged INTEGER NOT NULL DEFAULT 0
    ) STRICT
    """,
    "CREATE INDEX dropped_unpurged ON dropped (chat) WHERE NOT purged",
    """
    CREATE TABLE damaged (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        chat INTEGER NOT NULL,
        body BLOB NOT NULL,
        error TEXT NOT NULL,
        at TEXT NOT NULL
    ) STRICT
    """,
)

_DIFFS: Migration = (
    """
    CREATE TABLE diffs (
        id INTEGER PRIMARY KEY,
        chat INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        patch BLOB NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX diffs_by_run ON diffs (chat, run_id)",
)

# What frames a turn, and what is told of its inside: few rows each, read without the others.
# The types are compared one by one: of a list that it has to look into, SQLite builds a table
# for each row that is inserted, which makes appends slower by half.
_OUTLINE: Migration = (
    """
    CREATE INDEX events_outline ON events (chat, seq)
    WHERE type <> 'assistant_text' AND type <> 'idle_warning' AND type <> 'process_started'
        AND type <> 'provider_session' AND type <> 'raw_event' AND type <> 'reasoning_summary'
        AND type <> 'subagent_state' AND type <> 'tool_finished' AND type <> 'tool_started'
    """,
    """
    CREATE INDEX events_trace ON events (chat, seq, type)
    WHERE type = 'code_diff' OR type = 'reasoning_summary'
        OR type = 'tool_finished' OR type = 'tool_started'
    """,
    "CREATE INDEX events_subagents ON events (chat, seq) WHERE type = 'subagent_state'",
)

_SEARCH: Migration = (
    """
    CREATE VIRTUAL TABLE search USING fts5(
        text, content='', contentless_delete=1, tokenize="unicode61 remove_diacritics 2"
    )
    """,
    "CREATE TABLE search_marks (chat INTEGER PRIMARY KEY, seq INTEGER NOT NULL) STRICT",
)

_FILES: Migration = (
    """
    CREATE TABLE files (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        chat INTEGER NOT NULL,
        event_seq INTEGER NOT NULL,
        content_type TEXT NOT NULL,
        body BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX files_by_chat ON files (chat, number)",
)

MIGRATIONS: Sequence[Migration] = (_FIRST, _DIFFS, _OUTLINE, _SEARCH, _FILES)


def version(connection: apsw.Connection) -> int:
    found = connection.pragma("user_version")
    if not isinstance(found, int):
        raise TypeError("user_version is not a number")
    return found


def migrate(connection: apsw.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Take the steps that are missing, each in a transaction of its own; how many they were."""
    start = version(connection)
    for number, steps in enumerate(migrations[start:], start + 1):
        with transaction(connection):
            for statement in steps:
                connection.execute(statement)
            connection.pragma("user_version", number)
    return len(migrations) - start
