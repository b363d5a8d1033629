"""What the page shows, as HTML.  Reading is done here, filling of templates in worker threads."""

import datetime
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from quart import Response

from agentsdock.chats.dock import Dock
from agentsdock.model.errors import NotFound
from agentsdock.model.events import TERMINAL_TYPES
from agentsdock.model.requests import ReadPage
from agentsdock.model.sessions import BACKENDS
from agentsdock.web import figures
from agentsdock.web.page import assets, tools
from agentsdock.web.page.diffs import read_patch
from agentsdock.web.page.rendering import beside, fill, since
from agentsdock.web.page.rows import Event, grouped, rows

ROWS = 120
BEFORE_HIT = 40
LOOK_BACK = 4_000
"""Events before the end of a turn among which its last words are looked for."""
MAX_FILES = 200

_PERMISSIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "cursor": lambda chat: chat["cursor_permission_mode"],
    "claude": lambda chat: chat["claude_permission_mode"],
    "codex": lambda chat: f"{chat['codex_sandbox_mode']} {chat['codex_approval_policy']}",
}

_SAYING = ("output", "text", "result_text", "digest", "prompt")

_decode = msgspec.json.Decoder().decode


class Views:
    """One method a view or fragment.  Raises NotFound for a chat, event or diff not there."""

    def __init__(self, dock: Dock) -> None:
        self._dock = dock
        self._list: tuple[str, str] = ("", "")

    async def login(self) -> str:
        return await beside(lambda: fill("login.html", assets=assets.base()))

    async def problem(self, words: str) -> str:
        return await self._page("problem.html", words=words)

    async def home(self) -> str:
        settings, runtimes = self._dock.settings, self._dock.runtimes
        backends = [runtimes.diagnostic(name).public() for name in BACKENDS]
        ready = [found["backend"] for found in backends if found["available"]]
        default = settings.default_backend
        chosen = default if default in ready or not ready else ready[0]
        broken = [one["backend"].capitalize() for one in backends if one["status"] == "error"]
        return await self._page(
            "home.html",
            backends=backends,
            chosen=chosen,
            broken=broken,
            default_cwd=settings.cwd,
        )

    async def chat(self, session_id: str, at: int | None) -> str:
        chat = self._dock.chats.detail(session_id)
        body = await self._read(session_id, at=at)
        said = await self._said(session_id, body["events"])
        permission = _PERMISSIONS[chat["backend"]](chat)
        return await self._page(
            "chat.html",
            chat=chat,
            at=at or "",
            mode="" if permission in ("default", "danger-full-access never") else permission,
            permission=permission,
            rows=await beside(_filled_rows, session_id, body, said),
            queue=await beside(fill, "queue.html", waiting=body["queued_turns"]),
            state=msgspec.json.encode(self._state(session_id, body["latest_seq"])).decode(),
        )

    async def health(self) -> str:
        return await self._page("health.html", here="health", shown=await self._figures())

    async def figures(self) -> str:
        return await beside(fill, "figures.html", shown=await self._figures())

    async def chat_list(self) -> tuple[str, str]:
        """The list and the tag of its state; made anew only when something in it has changed."""
        house = self._dock.chats.health()
        now = datetime.datetime.now(datetime.UTC)
        summaries = self._dock.chats.summaries()
        state = hashlib.blake2b(summaries, digest_size=8)
        state.update(repr((sorted(house["active"]), house["queued"], f"{now:%H%M}")).encode())
        tag = f'"{state.hexdigest()}"'
        if self._list[1] != tag:
            html = await beside(_filled_list, summaries, house["active"], house["queued"], now)
            self._list = (html, tag)
        return self._list[0], tag

    async def found(self, query: str, limit: int) -> str:
        answer = await self._dock.searching.everywhere(query, limit)
        hits = [
            {**hit, "title": self._dock.chats.detail(hit["session_id"])["title"]}
            for hit in answer["results"]
        ]
        return await beside(
            fill, "found.html", hits=hits, query=query, complete=answer["complete"], most=limit
        )

    async def rows(
        self,
        session_id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        at: int | None = None,
        limit: int = ROWS,
    ) -> str:
        body = await self._read(session_id, after=after, before=before, at=at, limit=limit)
        said = await self._said(session_id, body["events"])
        return await beside(_filled_rows, session_id, body, said)

    async def whole(self, session_id: str, seq: int) -> str:
        """All that is kept of what one event says."""
        self._dock.chats.detail(session_id)
        found = await self._dock.store.read_from(session_id, max(seq - 1, 0), max_rows=1)
        if not found or found[0].seq != seq:
            raise NotFound("event not found")
        event = await beside(found[0].decode)
        said = (event.get(name) for name in _SAYING)
        words = tools.plan_of(event) or next(filter(None, said), "")
        return await beside(fill, "whole.html", text=str(words))

    async def queue(self, session_id: str) -> str:
        page = await self._dock.chats.page(session_id, _wanted(after=None, before=1, limit=1))
        return await beside(fill, "queue.html", waiting=_decode(page)["queued_turns"])

    async def files(self, session_id: str) -> str:
        page = await self._dock.library.page(
            session_id, limit=MAX_FILES, offset=0, content_prefix=""
        )
        left = page["total"] - len(page["files"])
        return await beside(fill, "files.html", chat=session_id, files=page["files"], more=left)

    async def diff(self, session_id: str, run_id: str) -> str:
        patch = await self._dock.diffs.patch(session_id, run_id)
        return await beside(_filled_diff, session_id, run_id, patch)

    async def asset(self, version: str, name: str) -> Response:
        body = (await beside(assets.contents)).get(name)
        if body is None:
            raise NotFound("Not Found")
        same = version == await beside(assets.version)
        headers = {
            "content-type": assets.TYPES[name[name.rindex(".") :]],
            "cache-control": "public, max-age=31536000, immutable" if same else "no-store",
            "cross-origin-resource-policy": "same-origin",
            "content-security-policy": "default-src 'none'",
            "x-content-type-options": "nosniff",
        }
        return Response(body, 200, headers)

    async def _page(self, name: str, **values: Any) -> str:
        chat_list, tag = await self.chat_list()
        return await beside(_filled_page, name, chat_list, tag, self._can_leave, values)

    @property
    def _can_leave(self) -> bool:
        return self._dock.settings.token is not None

    async def _figures(self) -> dict[str, Any]:
        return await figures.collect(self._dock)

    async def _read(
        self,
        session_id: str,
        *,
        after: int | None = None,
        before: int | None = None,
        at: int | None = None,
        limit: int = ROWS,
    ) -> dict[str, Any]:
        if at is not None:
            after = max(at - BEFORE_HIT, 0)
        page = await self._dock.chats.page(session_id, _wanted(after, before, limit))
        body: dict[str, Any] = await beside(_decode, page)
        return {**body, "asked_after": after, "asked_before": before}

    async def _said(self, session_id: str, events: Iterable[Event]) -> frozenset[int]:
        """The terminal events whose result repeats the last words of their turn."""
        said: set[int] = set()
        last: dict[str, str] = {}
        for event in events:
            run_id = str(event.get("run_id"))
            if event["type"] == "assistant_text" and str(event.get("text") or "").strip():
                last[run_id] = event["text"]
            result = str(event.get("result_text") or "").strip()
            if event["type"] not in TERMINAL_TYPES or not result:
                continue
            words = last.get(run_id)
            if words is None:
                words = await self._last_words(session_id, run_id, event["seq"])
            if words.strip() and (words.strip() in result or result in words):
                said.add(event["seq"])
        return frozenset(said)

    async def _last_words(self, session_id: str, run_id: str, end: int) -> str:
        span = (max(end - LOOK_BACK, 1), end)
        [row] = await self._dock.store.last_texts(session_id, [span])
        if row is None or row.run_id != run_id:
            return ""
        return str(row.decode().get("text") or "")

    def _state(self, session_id: str, latest_seq: int) -> dict[str, Any]:
        """What the page's script needs to know of the chat before anything happens in it."""
        runs = [
            run
            for run in self._dock.chats.health()["active_runs"]
            if run["session_id"] == session_id
        ]
        return {"latest_seq": latest_seq, "run": runs[0] if runs else None}


def _wanted(after: int | None, before: int | None, limit: int) -> ReadPage:
    return ReadPage(
        after=after or 0,
        before=before,
        limit=limit,
        tail=after is None,
        visible=True,
        compact=False,
        semantic=False,
    )


def _filled_page(
    name: str, chat_list: str, tag: str, can_leave: bool, values: Mapping[str, Any]
) -> str:
    from markupsafe import Markup

    safe = {
        key: Markup(value) if key in ("rows", "queue") else value  # noqa: S704
        for key, value in values.items()
    }
    return fill(
        name,
        assets=assets.base(),
        chat_list=Markup(chat_list),  # noqa: S704
        list_tag=tag,
        can_leave=can_leave,
        **{"here": "", **safe},
    )


def _filled_rows(session_id: str, body: Mapping[str, Any], said: frozenset[int]) -> str:
    events = body["events"]
    after, before = body["asked_after"], body["asked_before"]
    latest = body["latest_seq"]
    return fill(
        "rows.html",
        chat=session_id,
        items=list(grouped(rows(events, said))),
        first=events[0]["seq"] if events else (before or latest + 1),
        last=events[-1]["seq"] if events else (after or latest),
        before=(events[0]["seq"] > 1) * 1 if events else 0,
        after=body["events_omitted_after"] if after is not None else (0 if before is None else 1),
        latest=latest,
    )


def _filled_list(
    summaries: bytes,
    active: Iterable[str],
    queued: Mapping[str, int],
    now: datetime.datetime,
) -> str:
    running = set(active)
    sections: dict[str, dict[str, Any]] = {}
    for chat in _decode(summaries)["sessions"]:
        name = "Archived" if chat["archived"] else "Pinned" if chat["pinned"] else chat["folder"]
        key = f"{chat['archived']}{chat['pinned']}{name}"
        section = sections.setdefault(
            key, {"name": name, "archived": chat["archived"], "chats": []}
        )
        unread = chat["latest_agent_event_seq"] > chat["last_read_agent_event_seq"]
        section["chats"].append(
            {
                "id": chat["id"],
                "title": chat["title"],
                "unread": unread or chat["manual_unread"],
                "running": chat["id"] in running,
                "queued": queued.get(chat["id"], 0),
                "when": since(chat["updated_at"], now),
            }
        )
    return fill("chats.html", sections=list(sections.values()))


def _filled_diff(session_id: str, run_id: str, patch: bytes) -> str:
    read = read_patch(patch.decode("utf-8", "replace"))
    return fill("diff.html", chat=session_id, run_id=run_id, patch=read)
