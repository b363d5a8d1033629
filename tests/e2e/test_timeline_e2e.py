"""A chat read by its landmarks, from a real server."""


async def played(house, *prompts, chat=None):
    chat = chat or await house.chat()
    runs = []
    for prompt in prompts:
        run = await house.turn(chat, prompt)
        async with house.follow(chat, query="&visible=true") as socket:
            while f'"run_id":"{run}"' not in (frame := await socket.get_message()) or (
                '"type":"turn_finished"' not in frame
            ):
                pass
        runs.append(run)
    return chat, runs


async def get(house, path, status=200, **query):
    answer = await house.http.get(path, params=query or None)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_semantic_page_holds_whole_turns(house):
    chat, runs = await played(house, *[f"[[fake events=9]] ask {n}" for n in range(3)])
    page = await get(house, f"/api/sessions/{chat}", page_mode="semantic", limit=2)
    assert page["semantic_item_count"] == 2
    assert page["semantic_total"] == page["event_count"] == 4
    assert page["semantic_omitted_before"] == page["events_omitted_before"] == 2
    assert page["semantic_omitted_after"] == page["events_omitted_after"] == 0
    seqs = [event["seq"] for event in page["events"]]
    assert seqs == sorted(set(seqs))
    assert len(seqs) <= 8
    for run in runs[1:]:
        own = [event["type"] for event in page["events"] if event["run_id"] == run]
        assert own[0] == "turn_started"
        assert own[-1] == "turn_finished"
    raw = await get(house, f"/api/sessions/{chat}", limit=1)
    assert page["latest_seq"] == raw["latest_seq"]
    assert page["queued_turns"] == []
    older = await get(
        house,
        f"/api/sessions/{chat}",
        page_mode="semantic",
        semantic_before=page["next_semantic_before"],
    )
    assert older["events"][0]["type"] == "session_created"
    assert older["next_semantic_before"] is None
    assert runs[0] in {event.get("run_id") for event in older["events"]}


async def test_the_index_lists_what_there_is(house):
    chat, runs = await played(house, "[[fake events=3]] plan the garden\nand more")
    index = await get(house, f"/api/sessions/{chat}/timeline-index")
    assert index["session_id"] == chat
    created, turn = index["landmarks"]
    assert created["kind"] == "system"
    assert turn["key"] == f"turn:{runs[0]}"
    assert turn["title"].endswith("plan the garden")
    assert turn["end_seq"] == index["latest_seq"]


async def test_a_trace_is_read_in_pages(house):
    chat, [run] = await played(house, "[[fake tools=3]]")
    path = f"/api/sessions/{chat}/runs/{run}/trace"
    whole = await get(house, path)
    kinds = {event["type"] for event in whole["events"]}
    assert kinds <= {"tool_started", "tool_finished", "reasoning_summary", "code_diff"}
    assert whole["has_more"] is False
    paged, after, more = [], 0, True
    while more:
        page = await get(house, path, after_seq=after, limit=1, anchor_seq=2)
        paged += page["events"]
        after, more = page["next_after"], page["has_more"]
    assert paged == whole["events"]
    assert len(paged) > 1


REFUSED = [
    ("sess_0000000000000000/timeline-index", 404),
    ("sess_0000000000000000/subagents", 404),
    ("sess_0000000000000000/runs/run_0000000000000000/trace", 404),
    ("{chat}/runs/run_0000000000000000/trace", 404),
    ("{chat}/runs/{other}/trace", 404),
    ("{chat}/runs/{run}/trace?limit=0", 422),
    ("{chat}/runs/{run}/trace?limit=1001", 422),
    ("{chat}/runs/{run}/trace?anchor_seq=0", 422),
    ("{chat}/subagents?limit=257", 422),
    ("{chat}/subagents?limit=x", 422),
    ("{chat}?page_mode=other", 400),
]


async def test_what_is_not_there_or_out_of_bounds_is_refused(house):
    chat, [run] = await played(house, "[[fake]]")
    _, [other] = await played(house, "[[fake]]")
    for path, status in REFUSED:
        await get(house, "/api/sessions/" + path.format(chat=chat, run=run, other=other), status)


async def test_a_chat_without_helpers_has_none(house):
    chat = await house.chat()
    found = await get(house, f"/api/sessions/{chat}/subagents")
    assert found == {
        "session_id": chat,
        "subagents": [],
        "count": 0,
        "active_count": 0,
        "latest_seq": 1,
    }
