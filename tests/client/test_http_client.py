"""The client's calls against a scripted HTTP server: what it sends, what answers become."""

import functools
import json

import h11
import pytest
import trio

from agentsdock.client.errors import ApiError
from agentsdock.client.http import Client

SESSION = {"id": "sess_0123456789abcdef", "title": "t"}
STARTED = {"seq": 3, "type": "turn_started", "run_id": "run_1"}


class ScriptedServer:
    """Gives the answers of a list, one a request; ``None`` hangs up instead."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.requests = []

    async def serve(self, stream):
        connection = h11.Connection(h11.SERVER)
        try:
            await self._serve(stream, connection)
        except trio.BrokenResourceError:
            pass
        finally:
            await stream.aclose()

    async def _serve(self, stream, connection):
        while True:
            request, body = None, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    return
            self.requests.append(
                {
                    "line": f"{request.method.decode()} {request.target.decode()}",
                    "headers": {k.decode(): v.decode() for k, v in request.headers},
                    "body": json.loads(body) if body else None,
                }
            )
            answer = self.answers.pop(0)
            if answer is None:
                return
            status, content = answer
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            headers = [("content-length", str(len(data)))]
            await stream.send_all(
                connection.send(h11.Response(status_code=status, headers=headers))
                + connection.send(h11.Data(data=data))
                + connection.send(h11.EndOfMessage())
            )
            connection.start_next_cycle()


@pytest.fixture
async def scripted(nursery):
    async def start(*answers, token=None):
        server = ScriptedServer(answers)
        listeners = await nursery.start(
            functools.partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1")
        )
        port = listeners[0].socket.getsockname()[1]
        return server, Client(f"http://127.0.0.1:{port}", token)

    return start


async def test_it_lists_summaries_and_presents_its_token(scripted):
    server, client = await scripted((200, {"sessions": [SESSION]}), token="secret")
    async with client:
        assert await client.sessions() == [SESSION]
    (request,) = server.requests
    assert request["line"] == "GET /api/sessions?summary=true"
    assert request["headers"]["authorization"] == "Bearer secret"


async def test_without_a_token_no_header_is_sent(scripted):
    server, client = await scripted((200, {"ok": True}))
    async with client:
        await client.health()
    assert "authorization" not in server.requests[0]["headers"]


async def test_a_started_turn_and_a_queued_one_are_told_apart(scripted):
    started = {"queued": False, "run_id": "run_1", "session": SESSION, "event": STARTED}
    queued = {"queued": True, "queued_id": "queued_1", "position": 2, "event": {"seq": 4}}
    _, client = await scripted((200, started), (200, queued))
    async with client:
        first = await client.post_turn("sess_1", "go")
        second = await client.post_turn("sess_1", "go on", model="m")
    assert (first.queued, first.run_id, first.event) == (False, "run_1", STARTED)
    assert (second.queued, second.queued_id, second.position) == (True, "queued_1", 2)


async def test_a_lost_answer_is_asked_for_again_under_the_same_key(scripted, autojump_clock):
    body = {"queued": False, "run_id": "run_1", "event": STARTED}
    server, client = await scripted(None, None, (200, body))
    async with client:
        accepted = await client.post_turn("sess_1", "go")
    assert accepted.run_id == "run_1"
    assert len(server.requests) == 3
    assert len({request["headers"]["idempotency-key"] for request in server.requests}) == 1
    assert {request["body"]["prompt"] for request in server.requests} == {"go"}


async def test_it_gives_up_after_three_lost_answers(scripted, autojump_clock):
    server, client = await scripted(None, None, None)
    async with client:
        with pytest.raises(ApiError) as caught:
            await client.post_turn("sess_1", "go")
    assert caught.value.status is None
    assert len(server.requests) == 3


async def test_a_refusal_is_not_tried_again(scripted):
    server, client = await scripted((409, {"detail": "the chat is archived"}))
    async with client:
        with pytest.raises(ApiError, match="archived"):
            await client.post_turn("sess_1", "go")
    assert len(server.requests) == 1


async def test_each_turn_has_a_key_of_its_own(scripted):
    body = {"queued": False, "run_id": "run_1", "event": STARTED}
    server, client = await scripted((200, body), (200, body))
    async with client:
        await client.post_turn("sess_1", "go")
        await client.post_turn("sess_1", "go")
    assert len({request["headers"]["idempotency-key"] for request in server.requests}) == 2


async def test_a_stop_gives_its_receipt(scripted):
    receipt = {
        "ok": True,
        "stopped": True,
        "outcome": "stopped",
        "run_id": "run_1",
        "terminal_seq": 9,
        "tree_empty": True,
        "processes_ended": 2,
        "elapsed_ms": 12.5,
        "rung": "subreaper",
    }
    pending = {**receipt, "pending": True, "terminal_seq": None}
    server, client = await scripted(
        (200, receipt), (200, {"ok": True, "outcome": "idle"}), (200, pending)
    )
    async with client:
        stopped, idle, late = [await client.stop("sess_1") for _ in range(3)]
    assert [receipt.pending for receipt in (stopped, idle, late)] == [False, False, True]
    assert server.requests[0]["line"] == "POST /api/sessions/sess_1/stop"
    assert (stopped.outcome, stopped.terminal_seq, stopped.tree_empty) == ("stopped", 9, True)
    assert (idle.outcome, idle.run_id, idle.tree_empty) == ("idle", None, None)


@pytest.mark.parametrize(
    ("status", "body", "message", "code", "action"),
    [
        (404, {"detail": "session not found"}, "session not found", None, None),
        (
            503,
            {"detail": {"code": "runtime_unavailable", "message": "no CLI", "action": "get one"}},
            "no CLI",
            "runtime_unavailable",
            "get one",
        ),
        (
            422,
            {"detail": [{"type": "x", "loc": ["body", "title"], "msg": "too long"}]},
            "body.title: too long",
            None,
            None,
        ),
        (500, b"<html>", "the server answered 500", None, None),
        (502, {"detail": None}, "the server answered 502", None, None),
    ],
)
async def test_every_error_answer_is_one_class(scripted, status, body, message, code, action):
    _, client = await scripted((status, body))
    async with client:
        with pytest.raises(ApiError) as caught:
            await client.session("sess_1")
    error = caught.value
    assert (error.status, error.message, error.code) == (status, message, code)
    assert error.action == action


async def test_a_missing_token_says_where_to_get_one(scripted):
    _, client = await scripted((401, {"detail": "unauthorized"}))
    async with client:
        with pytest.raises(ApiError, match=r"^unauthorized\. Give .*--token"):
            await client.sessions()


async def test_an_answer_that_is_not_json_is_an_error(scripted):
    _, client = await scripted((200, b"hello"))
    async with client:
        with pytest.raises(ApiError, match="not JSON"):
            await client.health()


async def test_no_server_is_an_error_that_names_the_address():
    async with Client("http://127.0.0.1:1") as client:
        with pytest.raises(ApiError, match=r"no answer from http://127\.0\.0\.1:1") as caught:
            await client.health()
    assert caught.value.status is None


async def test_an_id_cannot_leave_its_place_in_the_path(scripted):
    server, client = await scripted((404, {"detail": "session not found"}))
    async with client:
        with pytest.raises(ApiError):
            await client.session("../x?y", tail=False, limit=5)
    line = "GET /api/sessions/..%2Fx%3Fy?tail=false&limit=5"
    assert server.requests[0]["line"] == line


async def test_an_extension_names_its_clock_only_where_one_is_meant(scripted):
    server, client = await scripted((200, {"ok": True}), (200, {"ok": True}))
    async with client:
        await client.extend("sess_1", "run_1", 60)
        await client.extend("sess_1", "run_1", 60, clock="idle")
    assert [request["body"] for request in server.requests] == [
        {"seconds": 60},
        {"seconds": 60, "clock": "idle"},
    ]
    assert server.requests[0]["line"] == "POST /api/sessions/sess_1/runs/run_1/extend"


async def test_waiting_messages_are_asked_for_by_chat_and_row(scripted):
    row = {"queued_id": "queued_1", "prompt": "new"}
    server, client = await scripted(
        (200, {"session": SESSION, "queued_turns": [row], "events": []}),
        (200, {"ok": True, "queued_id": "queued_1", "item": row}),
        (200, {"ok": True, "positions": [{"queued_id": "queued_1", "position": 1}]}),
        (200, {"ok": True, "queued_id": "queued_1", "interrupted": True}),
        (200, {"ok": True, "unqueued": True, "queued_id": "queued_1", "remaining": 3}),
    )
    async with client:
        assert await client.queue("sess_1") == [row]
        assert await client.edit_queued("sess_1", "../x", prompt="new") == row
        [place] = await client.move_queued("sess_1", "queued_1", "up")
        assert place["position"] == 1
        assert (await client.run_queued_now("sess_1", "queued_1"))["interrupted"]
        assert await client.delete_queued("sess_1", "queued_1") == 3
    place = "/api/sessions/sess_1/queue"
    assert [(request["line"], request["body"]) for request in server.requests] == [
        ("GET /api/sessions/sess_1?limit=1", None),
        (f"PATCH {place}/..%2Fx", {"prompt": "new"}),
        (f"POST {place}/queued_1/move", {"direction": "up"}),
        (f"POST {place}/queued_1/run-now", None),
        (f"DELETE {place}/queued_1", None),
    ]


async def test_proxies_of_the_environment_are_not_used(scripted, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    _, client = await scripted((200, {"ok": True}))
    async with client:
        assert await client.health() == {"ok": True}


async def test_a_search_is_of_one_chat_or_of_all(scripted):
    reply = {"query": "a b", "results": [], "complete": True}
    server, client = await scripted((200, reply), (200, reply))
    async with client:
        assert await client.search("a b") == reply
        await client.search("ü", session_id="sess_1", limit=3)
    assert [request["line"] for request in server.requests] == [
        "GET /api/search?q=a+b&limit=40",
        "GET /api/sessions/sess_1/search?q=%C3%BC&limit=3",
    ]
