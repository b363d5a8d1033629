from fake_dock import CHAT

from agentsdock.model.errors import NotFound


async def test_a_patch_is_served_as_it_is(server):
    async with server.http() as client:
        answer = await client.get(f"/api/sessions/{CHAT}/diffs/run_1")
    assert answer.status_code == 200
    assert answer.content == b"diff --git a/x b/x\n\xff\n"
    assert answer.headers["content-type"] == "text/x-diff; charset=utf-8"
    assert answer.headers["content-disposition"] == "inline"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert server.dock.chats.calls == [("patch_of", CHAT, "run_1")]


async def test_a_run_without_a_diff_is_not_found(server):
    server.dock.chats.raises = NotFound("diff not found")
    async with server.http() as client:
        answer = await client.get(f"/api/sessions/{CHAT}/diffs/run_1")
        assert (answer.status_code, answer.json()) == (404, {"detail": "diff not found"})
        assert (await client.get(f"/api/sessions/{CHAT}/diffs/a/b")).status_code == 404
        assert (await client.post(f"/api/sessions/{CHAT}/diffs/run_1")).status_code == 405
