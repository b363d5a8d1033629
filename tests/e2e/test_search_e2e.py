"""Search through a real server: nothing is found late, nothing that is gone is found."""

from test_timeline_e2e import get, played

ODD = ("::", "NEAR(", '"hel', "a\0b", "x" * 500, "hello AND", "-hello OR", b"\xed\xa0\xbd")


async def test_what_was_said_is_found_at_once(house):
    chat, _ = await played(house, "[[fake]] where is the pruning table")
    found = await get(house, f"/api/sessions/{chat}/search", q="prun tab")
    [hit] = found["results"]
    assert (found["session_id"], found["query"], found["complete"]) == (chat, "prun tab", True)
    assert (hit["session_id"], hit["seq"], hit["role"]) == (chat, 2, "user")
    assert "pruning table" in hit["snippet"]
    assert set(hit) == {"session_id", "event_id", "seq", "ts", "role", "snippet"}
    everywhere = await get(house, "/api/search", q="pruning")
    assert [(h["session_id"], h["match_count"]) for h in everywhere["results"]] == [(chat, 1)]


async def test_a_final_text_that_repeats_the_last_words_is_one_hit(house):
    chat, _ = await played(house, "[[fake]] go")
    found = await get(house, f"/api/sessions/{chat}/search", q="xxxxxxxx")
    assert [hit["role"] for hit in found["results"]] == ["assistant"]


async def test_archived_chats_are_found_in_themselves_only_and_deleted_ones_nowhere(house):
    chat, _ = await played(house, "[[fake]] needle")
    await house.http.patch(f"/api/sessions/{chat}", json={"archived": True})
    assert (await get(house, "/api/search", q="needle"))["results"] == []
    assert len((await get(house, f"/api/sessions/{chat}/search", q="needle"))["results"]) == 1
    await house.http.delete(f"/api/sessions/{chat}")
    await get(house, f"/api/sessions/{chat}/search", 404, q="needle")
    assert (await get(house, "/api/search", q="needle"))["results"] == []


async def test_queries_out_of_bounds_are_refused_and_odd_ones_find_nothing(house):
    chat, _ = await played(house, "[[fake]] hello")
    for path in (f"/api/sessions/{chat}/search", "/api/search"):
        for query in ("", "a", "x" * 501):
            await get(house, path, 422, q=query)
        for limit in ("0", "101", "many"):
            await get(house, path, 422, q="hello", limit=limit)
        for query in (
            "::",
            "NEAR(",
            '"hel',
            "a\0",
            "x" * 500,
            "hello AND",
            "-hello OR",
            "\ud83d".encode("utf-8", "surrogatepass"),
        ):
            await get(house, path, q=query)
    await get(house, "/api/sessions/sess_0000000000000000/search", 404, q="hello")
