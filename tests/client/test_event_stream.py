"""Following events over connections that break: every event once, in order, or an error."""

import json
import urllib.parse

import pytest
import trio
from trio_websocket import ConnectionClosed, serve_websocket

from agentsdock.client.errors import ApiError
from agentsdock.client.http import Client


class ScriptedSocket:
    """A WebSocket server that plays one script a connection, the last one ever after.

    A script is a list of frames, then how the connection ends: a close code, ``"drop"`` for a
    broken connection, ``"stay"``, or an HTTP status that refuses the connection.
    """

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.asked = []

    async def __call__(self, request):
        self.asked.append(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.path).query)))
        *frames, end = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if isinstance(end, int) and end < 1000:
            await request.reject(end, body=b'{"detail":"no"}')
            return
        socket = await request.accept()
        try:
            for frame in frames:
                text = frame if isinstance(frame, str) else json.dumps(frame)
                await socket.send_message(text)
            if end == "drop":
                await socket._stream.aclose()
            elif end == "stay":
                await trio.sleep_forever()
            else:
                await socket.aclose(end, "")
        except ConnectionClosed:
            pass


def event(seq):
    return {"seq": seq, "type": "assistant_text"}


SYNC = {"type": "sync", "verdict": "ok", "from": 1}


@pytest.fixture
async def followed(nursery):
    async def start(*scripts):
        server = ScriptedSocket(*scripts)

        async def serve(task_status):
            await serve_websocket(server, "127.0.0.1", 0, None, task_status=task_status)

        listening = await nursery.start(serve)
        return server, Client(f"http://127.0.0.1:{listening.port}")

    return start


async def seqs(client, count, **options):
    got = []
    with trio.fail_after(20):
        async with client, client.events("sess_1", **options) as events:
            async for one in events:
                got.append(one["seq"])
                if len(got) == count:
                    break
    return got


async def test_events_come_in_order_without_the_control_frames(followed):
    caught_up = {"type": "caught_up", "seq": 2}
    server, client = await followed([SYNC, event(1), event(2), caught_up, event(3), "stay"])
    assert await seqs(client, 3) == [1, 2, 3]
    assert server.asked == [{"after": "0", "visible": "false", "sync": "1"}]


@pytest.mark.parametrize("end", ["drop", 1012, 1013, 1011, 1001])
async def test_a_broken_connection_is_taken_up_where_it_broke(followed, end):
    server, client = await followed(
        [SYNC, event(1), event(2), end], [SYNC, end], [SYNC, event(3), "stay"]
    )
    assert await seqs(client, 3) == [1, 2, 3]
    assert [asked["after"] for asked in server.asked] == ["0", "2", "2"]


async def test_what_was_seen_is_not_given_again(followed):
    _, client = await followed([SYNC, event(1), event(2), "drop"], [event(2), event(3), "stay"])
    assert await seqs(client, 3) == [1, 2, 3]


async def test_it_starts_after_the_cursor_and_can_leave_raw_events_out(followed):
    server, client = await followed([SYNC, event(8), "stay"])
    assert await seqs(client, 1, after=7, visible=True) == [8]
    assert server.asked[0] == {"after": "7", "visible": "true", "sync": "1"}


async def test_missing_events_are_an_error_not_a_silence(followed):
    _, client = await followed([{"type": "sync", "verdict": "gap", "from": 90}, "stay"])
    with pytest.raises(ApiError) as caught:
        await seqs(client, 1, after=5)
    assert caught.value.code == "gap"
    assert "90" in caught.value.message


@pytest.mark.parametrize("code", [1000, 4404])
async def test_a_deleted_chat_ends_the_stream(followed, code):
    _, client = await followed([SYNC, event(1), code])
    assert await seqs(client, 99) == [1]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_refused_connection_is_an_error_with_its_status(followed, status):
    _, client = await followed([status])
    with pytest.raises(ApiError) as caught:
        await seqs(client, 1)
    assert caught.value.status == status


async def test_a_server_that_is_going_down_is_waited_for(followed):
    _, client = await followed([503], [SYNC, event(1), "stay"])
    assert await seqs(client, 1) == [1]


async def test_a_frame_that_is_not_json_is_an_error(followed):
    _, client = await followed(["hello", "stay"])
    with pytest.raises(ApiError, match="not JSON"):
        await seqs(client, 1)


async def test_it_gives_up_when_there_is_no_server_for_too_long():
    with pytest.raises(ApiError, match="no answer"):
        await seqs(Client("http://127.0.0.1:1"), 1, patience_seconds=0.3)


async def test_an_error_of_the_reader_is_raised_as_it_is(followed):
    _, client = await followed([SYNC, event(1), "stay"])
    with pytest.raises(LookupError):
        async with client, client.events("sess_1") as events:
            async for _ in events:
                raise LookupError


async def test_a_reader_can_leave_at_any_time(followed):
    _, client = await followed([SYNC, *map(event, range(1, 2000)), "stay"])
    with trio.move_on_after(5) as scope:
        async with client, client.events("sess_1") as events:
            async for one in events:
                if one["seq"] == 2:
                    break
    assert not scope.cancelled_caught


async def test_a_large_event_arrives_whole(followed):
    large = {"seq": 1, "type": "assistant_text", "text": "x" * 1_000_000}
    _, client = await followed([SYNC, large, "stay"])
    async with client, client.events("sess_1") as events:
        async for one in events:
            assert one == large
            break
