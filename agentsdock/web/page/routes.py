"""The page: its views, and the fragments of them that its scripts ask for.

A view answers whoever may call with itself and everybody else with the sign-in form.  What lies
under ``/page`` is refused by the gate without a token or the page's cookie, as the API is.
"""

from typing import TYPE_CHECKING

from quart import Blueprint, Response, request

from agentsdock.model.errors import NotFound, Unauthorized
from agentsdock.web import auth
from agentsdock.web.errors import Answer, answer
from agentsdock.web.parsing import MAX_INTEGER, Body, Query, limit_of, received
from agentsdock.web.search import read_search

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock
    from agentsdock.web.page.views import Views

COOKIE_SECONDS = 365 * 86_400
ROWS = 120
MAX_ROWS = 400

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

Page = tuple[str, int, dict[str, str]]


def blueprint(dock: "Dock") -> Blueprint:
    page = Blueprint("page", __name__)
    token = dock.settings.token.encode() if dock.settings.token else None
    kept: list[Views] = []

    def views() -> "Views":
        """Made, and imported with all its libraries, when the page is first opened."""
        if not kept:
            from agentsdock.web.page.views import Views

            kept.append(Views(dock))
        return kept[0]

    def may_see() -> bool:
        return token is None or auth.is_authorized(request.scope, token)

    @page.get("/")
    async def home() -> Page:
        if not may_see():
            return _html(await views().login(), 401)
        return _html(await views().home())

    @page.get("/chats/<session_id>")
    async def chat(session_id: str) -> Page:
        if not may_see():
            return _html(await views().login(), 401)
        at = Query(request.args).integer("at", None)
        try:
            return _html(await views().chat(session_id, at))
        except NotFound as error:
            return _html(await views().problem("This chat is not here (any more)."), error.status)

    @page.get("/health")
    async def health() -> Page:
        if not may_see():
            return _html(await views().login(), 401)
        return _html(await views().health())

    @page.post("/login")
    async def login() -> Answer:
        offered = Body(await received()).text("token", 4096) or ""
        if token is None or not auth.is_token(offered, token):
            raise Unauthorized("This is not the token of this server.")
        name, value = auth.page_cookie(token)
        return _with_cookie(name, value, COOKIE_SECONDS)

    @page.post("/logout")
    async def logout() -> Answer:
        return _with_cookie(auth.page_cookie(token)[0] if token else "agentsdock", "", 0)

    @page.get("/page/session")
    async def signed_in() -> Answer:
        return answer({"ok": True})

    @page.get("/page/chats")
    async def chats() -> Response | Page:
        html, tag = await views().chat_list()
        if request.headers.get("if-none-match") == tag:
            return Response(b"", 304, {"etag": tag, "cache-control": "no-store"})
        return html, 200, {**_HEADERS, "etag": tag}

    @page.get("/page/search")
    async def search() -> Page:
        return _html(await views().found(*read_search(Query(request.args))))

    @page.get("/page/health")
    async def figures() -> Page:
        return _html(await views().figures())

    @page.get("/page/chats/<session_id>/rows")
    async def rows(session_id: str) -> Page:
        query = Query(request.args)
        html = await views().rows(
            session_id,
            after=query.integer("after", None),
            before=query.integer("before", None),
            at=query.integer("at", None),
            limit=limit_of(query, ROWS, MAX_ROWS),
        )
        return _html(html)

    @page.get("/page/chats/<session_id>/rows/<int:seq>")
    async def whole(session_id: str, seq: int) -> Page:
        return _html(await views().whole(session_id, min(seq, MAX_INTEGER)))

    @page.get("/page/chats/<session_id>/queue")
    async def queue(session_id: str) -> Page:
        return _html(await views().queue(session_id))

    @page.get("/page/chats/<session_id>/files")
    async def files(session_id: str) -> Page:
        return _html(await views().files(session_id))

    @page.get("/page/chats/<session_id>/diffs/<run_id>")
    async def diff(session_id: str, run_id: str) -> Page:
        return _html(await views().diff(session_id, run_id))

    @page.get("/static/<version>/<name>")
    async def asset(version: str, name: str) -> Response:
        return await views().asset(version, name)

    return page


def _html(text: str, status: int = 200) -> Page:
    headers = {**_HEADERS, "www-authenticate": "Bearer"} if status == 401 else _HEADERS
    return text, status, headers


def _with_cookie(name: str, value: str, seconds: int) -> Answer:
    secure = "; Secure" if request.headers.get("origin", "").startswith("https:") else ""
    body, status, headers = answer({"ok": True})
    cookie = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return body, status, {**headers, "set-cookie": cookie}
