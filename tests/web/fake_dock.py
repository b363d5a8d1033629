"""A dock in memory: the surface that the web room uses, with nothing behind it."""

import hashlib
from types import SimpleNamespace

import msgspec
import trio
from attrs import evolve

from agentsdock import config
from agentsdock.backends.protocol import Diagnostic
from agentsdock.model.errors import Forbidden, NotFound
from agentsdock.model.events import Committed, Draft, encode, with_seq
from agentsdock.model.sessions import Head
from agentsdock.store.feed import Feed

CHAT = "sess_0123456789abcdef"
NOW = "2026-01-02T03:04:05Z"


def settings(**changes):
    loaded = config.load({"AGENTSDOCK_STATE_DIR": "/nonexistent/state"}, port=0)
    return evolve(loaded, **changes)


class MemoryStore:
    """Read side of a store; ``reads`` counts the pages that were taken."""

    def __init__(self):
        self.events = {}
        self.reads = 0

    async def read_from(self, session_id, after, *, max_bytes=256 * 1024, max_rows=1000):
        await trio.lowlevel.checkpoint()
        self.reads += 1
        page, size = [], 0
        for row in self.events.get(session_id, [])[after : after + max_rows]:
            page.append(row)
            size += len(row.body)
            if size >= max_bytes:
                break
        return page


class FakeChats:
    """Answers every request and keeps what it was asked for in ``calls``."""

    def __init__(self, store):
        self.calls = []
        self.raises = None
        self.holding = None
        self.entered = trio.Event()
        self.cancelled = trio.Event()
        self.page_body = b'{"session":{},"events":[]}'
        self._store = store

    async def _note(self, name, *args):
        self.calls.append((name, *args))
        if self.raises is not None:
            raise self.raises
        if self.holding is not None:
            self.entered.set()
            try:
                await self.holding.wait()
            except trio.Cancelled:
                self.cancelled.set()
                raise

    def head(self, session_id):
        if session_id not in self._store.events:
            raise NotFound("session not found")
        return Head(seq=len(self._store.events[session_id]))

    def summaries(self):
        return b'{"sessions":[{"id":"%s"}]}' % CHAT.encode()

    def details(self):
        return [{"id": CHAT, "system_prompt": None}]

    async def page(self, session_id, page):
        self.head(session_id)
        await self._note("page", session_id, page)
        return self.page_body

    async def create(self, wanted):
        await self._note("create", wanted)
        return {"id": CHAT}

    async def patch(self, session_id, wanted):
        await self._note("patch", session_id, wanted)
        return {"id": session_id}

    async def delete(self, session_id):
        await self._note("delete", session_id)
        return {"ok": True, "deleted": True, "deleted_jobs": 0}

    async def post_turn(self, session_id, message, idempotency):
        await self._note("post_turn", session_id, message, idempotency)
        return b'{"run_id":"run_0123456789abcdef","queued":false}'

    async def stop(self, session_id):
        await self._note("stop", session_id)
        return {"ok": True, "stopped": True}

    async def extend(self, session_id, run_id, seconds, clock):
        await self._note("extend", session_id, run_id, seconds, clock)
        return {"ok": True, "run_id": run_id}

    async def mark_read(self, session_id, seq):
        await self._note("mark_read", session_id, seq)
        return {"id": session_id}

    async def mark_unread(self, session_id):
        await self._note("mark_unread", session_id)
        return {"id": session_id}

    def health(self):
        return {"active": [], "active_count": 0, "queued": {}, "available_mem_mb": 4096}


class FakeQueue:
    """Its calls are among those of the chats."""

    def __init__(self, chats):
        self._note = chats._note

    async def edit(self, session_id, queued_id, wanted):
        await self._note("edit", session_id, queued_id, wanted)
        return {"ok": True, "queued_id": queued_id, "item": {}}

    async def delete(self, session_id, queued_id):
        await self._note("delete_queued", session_id, queued_id)
        return {"ok": True, "unqueued": True, "queued_id": queued_id, "remaining": 0}

    async def move(self, session_id, queued_id, direction):
        await self._note("move", session_id, queued_id, direction)
        return {"ok": True, "queued_id": queued_id, "positions": []}

    async def run_now(self, session_id, queued_id, *, accept_deferred):
        await self._note("run_now", session_id, queued_id, accept_deferred)
        return {"ok": True, "queued_id": queued_id}


class FakeDiffs:
    def __init__(self, chats):
        self._note = chats._note

    async def patch(self, session_id, run_id):
        await self._note("patch_of", session_id, run_id)
        return b"diff --git a/x b/x\n\xff\n"


class FakeRuntimes:
    def __init__(self):
        self.refreshed = []

    def diagnostic(self, name):
        return Diagnostic(name)

    async def catalog(self, *, refresh=False):
        self.refreshed.append(refresh)
        return {"generated_at": NOW, "backends": {}}


class FakePublishing:
    """No turn runs, so nobody holds a capability."""

    def holder(self, session_id, secret):
        raise Forbidden("this capability is not that of a running turn")


class FakeDock:
    def __init__(self, **changes):
        self.settings = settings(**changes)
        self.identity = SimpleNamespace(
            server=hashlib.sha256(b"here").hexdigest()[:24], instance="f" * 32, version="1.2.3"
        )
        self.store = MemoryStore()
        self.chats = FakeChats(self.store)
        self.queue = FakeQueue(self.chats)
        self.diffs = FakeDiffs(self.chats)
        self.reading = None
        self.searching = None
        self.forks = None
        self.imports = None
        self.library = None
        self.publishing = FakePublishing()
        self.runtimes = FakeRuntimes()
        self.feed = Feed(self.store)
        self.stopping = trio.Event()
        self.store.events[CHAT] = []

    def commit(self, *drafts, session_id=CHAT):
        """Append events and tell the watchers, as a store does."""
        rows = self.store.events.setdefault(session_id, [])
        fresh = []
        for draft in drafts:
            encoded = encode(session_id, draft, NOW)
            seq = len(rows) + len(fresh) + 1
            fresh.append(Committed(seq, draft.type, draft.run_id, with_seq(seq, encoded.body)))
        rows += fresh
        self.feed.publish(session_id, fresh, Head(seq=len(rows)))
        return fresh

    def say(self, *texts):
        return self.commit(*(Draft("assistant_text", {"text": text}) for text in texts))

    def delete(self, session_id=CHAT):
        del self.store.events[session_id]
        self.feed.drop(session_id)


def json(text):
    return msgspec.json.decode(text)
