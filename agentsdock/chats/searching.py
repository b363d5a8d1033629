"""Search through what was said, in one chat or in all that are not archived."""

import re
from typing import Any

from attrs import frozen

from agentsdock.chats.registry import Registry
from agentsdock.model.searchable import read_searchable
from agentsdock.store.protocol import Hit, Store

SNIPPET_CHARS = 200
LEAD_CHARS = 60
_WORD = re.compile(r'"([^"]+)"|([^\s"]+)')


@frozen
class Searching:
    store: Store
    registry: Registry

    async def chat(self, session_id: str, query: str, limit: int) -> dict[str, Any]:
        """The body of ``GET …/search``: newest first.  Raises NotFound."""
        self.registry.require(session_id)
        # A final text repeats what its turn has said already.
        found = await self.store.search_chat(session_id, query, 2 * limit)
        results = _without_repeats([_result(hit, query) for hit in found.hits])
        return {
            "session_id": session_id,
            "query": query,
            "results": [_public(result) for result in results[:limit]],
            "complete": found.complete,
        }

    async def everywhere(self, query: str, limit: int) -> dict[str, Any]:
        """The body of ``GET /api/search``: the newest hit of each chat, newest first."""
        shown = frozenset(chat.id for chat in self.registry if not chat.session.archived)
        found = await self.store.search_all(query, shown, limit)
        results = [{**_result(hit, query), "match_count": hit.count} for hit in found.hits]
        return {
            "query": query,
            "results": [_public(result) for result in results],
            "complete": found.complete,
        }


def _result(hit: Hit, query: str) -> dict[str, Any]:
    event = hit.event.decode()
    role, text = read_searchable(event)
    return {
        "session_id": hit.session_id,
        "event_id": event["id"],
        "seq": hit.event.seq,
        "ts": event["ts"],
        "role": role,
        "snippet": snippet(text, query),
        "_said_by": (event["type"], event.get("run_id")),
    }


def _public(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if not name.startswith("_")}


def _without_repeats(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    said = {result["_said_by"] for result in results}
    return [
        result
        for result in results
        if result["_said_by"][0] != "turn_finished"
        or ("assistant_text", result["_said_by"][1]) not in said
    ]


def snippet(text: str, query: str) -> str:
    """A line around the first of the query's words that stands in the text."""
    lowered = text.casefold() if len(text.casefold()) == len(text) else text.lower()
    places = (lowered.find((phrase or word).casefold()) for phrase, word in _WORD.findall(query))
    first = min((place for place in places if place >= 0), default=0)
    start = max(0, first - LEAD_CHARS)
    cut = " ".join(text[start : start + SNIPPET_CHARS].split())
    before = "…" if start else ""
    after = "…" if start + SNIPPET_CHARS < len(text) else ""
    return f"{before}{cut}{after}"
