"""The requests about waiting messages: what is read, what is refused before anything happens."""

import pytest
from fake_dock import CHAT

from agentsdock.model.errors import Conflict, NotFound
from agentsdock.model.requests import EditQueued

ROW = "queued_0123456789abcdef"
PLACE = f"/api/sessions/{CHAT}/queue/{ROW}"


@pytest.fixture
async def client(server):
    async with server.http() as client:
        yield client


EDITS = {
    "a new text": ({"prompt": "new"}, EditQueued(prompt="new")),
    "an empty text is for the queue to judge": ({"prompt": ""}, EditQueued(prompt="")),
    "nothing": ({}, EditQueued()),
    "null is not sent": (
        {"prompt": None, "file_ids": None, "client_capabilities": None, "chat_references": None},
        EditQueued(),
    ),
    "no files": ({"file_ids": []}, EditQueued(file_ids=())),
    "files once each": ({"file_ids": ["a", "b", "a"]}, EditQueued(file_ids=("a", "b"))),
    "capabilities": ({"client_capabilities": ["x"]}, EditQueued(client_capabilities=("x",))),
    "references": ({"chat_references": [{"a": 1}]}, EditQueued(chat_references=({"a": 1},))),
    "unknown keys": (
        {"prompt": "new", "expected_message_revision": 3, "team_references": []},
        EditQueued(prompt="new"),
    ),
}


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_holds_what_was_sent(client, server, name):
    body, wanted = EDITS[name]
    answer = await client.patch(PLACE, json=body)
    assert answer.status_code == 200
    assert answer.json() == {"ok": True, "queued_id": ROW, "item": {}}
    assert server.dock.chats.calls == [("edit", CHAT, ROW, wanted)]


BAD_EDITS = {
    "a number as text": ({"prompt": 3}, "prompt"),
    "a NUL": ({"prompt": "a\0b"}, "prompt"),
    "a file that is a number": ({"file_ids": [3]}, "file_ids"),
    "files that are no list": ({"file_ids": "f"}, "file_ids"),
    "many files": ({"file_ids": ["f"] * 257}, "file_ids"),
    "seventeen capabilities": ({"client_capabilities": ["c"] * 17}, "client_capabilities"),
    "a reference that is no object": ({"chat_references": ["r"]}, "chat_references"),
    "seventeen references": ({"chat_references": [{}] * 17}, "chat_references"),
}


@pytest.mark.parametrize("name", BAD_EDITS)
async def test_an_edit_that_cannot_be_read_names_the_field(client, server, name):
    body, field = BAD_EDITS[name]
    answer = await client.patch(PLACE, json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", field]
    assert server.dock.chats.calls == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"null", b'"x"'])
@pytest.mark.parametrize("method,path", [("PATCH", ""), ("POST", "/move")])
async def test_a_body_is_needed_and_is_an_object(client, server, method, path, content):
    headers = {"content-type": "application/json"}
    answer = await client.request(method, PLACE + path, content=content, headers=headers)
    assert answer.status_code == 422
    assert server.dock.chats.calls == []


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_move_goes_one_way(client, server, direction):
    answer = await client.post(f"{PLACE}/move", json={"direction": direction})
    assert answer.json() == {"ok": True, "queued_id": ROW, "positions": []}
    assert server.dock.chats.calls == [("move", CHAT, ROW, direction)]


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"direction": None}, 400), ({"direction": "UP"}, 400), ({"direction": 1}, 422)],
)
async def test_a_move_to_nowhere_is_refused(client, server, body, status):
    answer = await client.post(f"{PLACE}/move", json=body)
    assert answer.status_code == status
    assert server.dock.chats.calls == []


async def test_a_deletion_takes_no_body(client, server):
    answer = await client.delete(PLACE)
    assert answer.json() == {"ok": True, "unqueued": True, "queued_id": ROW, "remaining": 0}
    assert server.dock.chats.calls == [("delete_queued", CHAT, ROW)]


@pytest.mark.parametrize(
    ("options", "accepts"),
    [
        ({}, False),
        ({"json": {}}, False),
        ({"json": {"accept_deferred_queue_response": None, "more": 1}}, False),
        ({"json": {"accept_deferred_queue_response": False}}, False),
        ({"json": {"accept_deferred_queue_response": True}}, True),
    ],
)
async def test_whoever_forces_a_row_says_which_answers_it_can_read(
    client, server, options, accepts
):
    answer = await client.post(f"{PLACE}/run-now", **options)
    assert answer.status_code == 200
    assert server.dock.chats.calls == [("run_now", CHAT, ROW, accepts)]


async def test_forcing_takes_true_or_false(client, server):
    answer = await client.post(f"{PLACE}/run-now", json={"accept_deferred_queue_response": "yes"})
    assert answer.status_code == 422
    assert server.dock.chats.calls == []


@pytest.mark.parametrize("error", [NotFound("queued message not found"), Conflict("not now")])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"prompt": "new"}),
        ("DELETE", "", None),
        ("POST", "/move", {"direction": "up"}),
        ("POST", "/run-now", None),
    ],
)
async def test_what_the_queue_refuses_is_answered_as_such(
    client, server, error, method, path, body
):
    server.dock.chats.raises = error
    answer = await client.request(method, PLACE + path, json=body)
    assert (answer.status_code, answer.json()) == (error.status, {"detail": error.message})
