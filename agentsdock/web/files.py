"""Files of chats: taken in as a stream, given out whole or in part."""

from typing import TYPE_CHECKING

from quart import Blueprint, Response, request

from agentsdock.files import storage
from agentsdock.files.names import disposition, is_harmless
from agentsdock.files.ranges import NotSatisfiable, Span, wanted_span
from agentsdock.logs import get_logger
from agentsdock.model.errors import BadRequest, NotFound
from agentsdock.model.files import FileRecord
from agentsdock.web.errors import Answer, answer, envelope
from agentsdock.web.parsing import Query, limit_of
from agentsdock.web.uploads import ClientLeft, current_form

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock

MAX_LIMIT = 200
MAX_TARGET_CHARS = 4096

log = get_logger()


def blueprint(dock: "Dock") -> Blueprint:
    files = Blueprint("files", __name__)
    library = dock.library

    @files.post("/api/sessions/<session_id>/files")
    async def upload(session_id: str) -> Answer:
        form = current_form()
        try:
            part = await form.part()
            record = await library.upload(session_id, part.filename, part.content_type, part.data)
        except ClientLeft:
            return answer({"detail": "the client left"}, 400)
        except BaseException:
            await form.discard()
            raise
        return answer({"file": record})

    @files.get("/api/sessions/<session_id>/files")
    async def page(session_id: str) -> Answer:
        query = Query(request.args)
        body = await library.page(
            session_id,
            limit=limit_of(query, 0, MAX_LIMIT) if query.text("limit") else None,
            offset=query.integer("offset", 0),
            content_prefix=query.text("content_prefix"),
        )
        return answer(body)

    @files.route("/api/sessions/<session_id>/files/<file_id>", methods=["GET", "HEAD"])
    async def get(session_id: str, file_id: str) -> Response | Answer:
        return await send((await library.find(session_id, file_id)).record)

    @files.get("/api/sessions/<session_id>/files/<file_id>/event")
    async def event(session_id: str, file_id: str) -> Answer:
        return answer({"event": await library.event(session_id, file_id)})

    @files.route("/api/sessions/<session_id>/links/file", methods=["GET", "HEAD"])
    async def linked(session_id: str) -> Response | Answer:
        target = Query(request.args).text("target")
        if not target or len(target) > MAX_TARGET_CHARS:
            raise BadRequest("target must name a file")
        return await send(await library.find_linked(session_id, target))

    @files.route("/api/files/<file_id>", methods=["GET", "HEAD"])
    async def legacy(file_id: str) -> Response | Answer:
        session_id = Query(request.args).text("session_id") or None
        return await send(await library.find_anywhere(file_id, session_id))

    return files


async def send(record: FileRecord) -> Response | Answer:
    """The file, or the part of it that was asked for."""
    try:
        size = await storage.size_of(record.path)
    except OSError as error:
        log.error("stored file is missing", file=record.id, error=error.strerror)
        raise NotFound("file not found") from error
    headers = _headers(record)
    try:
        # A part is something that only GET can ask for.
        asked = request.headers.get("range") if request.method == "GET" else None
        span = wanted_span(asked, size)
    except NotSatisfiable:
        refusal, _, plain = envelope(BadRequest("the range lies behind the end of the file"))
        return refusal, 416, {**plain, "content-range": f"bytes */{size}"}
    status = 200
    if span is not None:
        status = 206
        headers["content-range"] = f"bytes {span.first}-{span.end - 1}/{size}"
    span = span or Span(0, size)
    headers["content-length"] = str(len(span))
    sent = Span(0, 0) if request.method == "HEAD" else span
    response = Response(storage.read(record.path, sent), status, headers)
    response.timeout = None  # the connection looks after clients that do not read
    return response


def _headers(record: FileRecord) -> dict[str, str]:
    headers = {
        "content-type": record.content_type,
        "content-disposition": disposition(record.filename, record.content_type),
        "accept-ranges": "bytes",
        "cache-control": "private, no-cache",
        "x-content-type-options": "nosniff",
    }
    if not is_harmless(record.content_type):
        headers["content-security-policy"] = "sandbox; default-src 'none'"
    return headers
