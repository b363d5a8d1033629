"""Half of a pair in what clients send: never in the way of anything that is read later."""

import json

import pytest

HALVES = {"high": "\\ud83d", "low": "\\udc00", "swapped": "\\udc00\\ud83d"}
PAIR = "\\ud83d\\ude00"


def body(**fields):
    """JSON whose texts hold the escapes as they are."""
    return json.dumps(fields).replace("\\\\", "\\").encode()


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_a_prompt_and_a_title_with_half_a_character_are_read_ever_after(house, half):
    headers = {"Content-Type": "application/json"}
    chat = await house.chat()
    path = f"/api/sessions/{chat}"
    titled = await house.http.patch(path, content=body(title=f"a {half} b"), headers=headers)
    assert titled.status_code in (200, 422)
    text = f"[[fake]] needle {half} {PAIR}"
    sent = await house.http.post(f"{path}/turns", content=body(prompt=text), headers=headers)
    assert sent.status_code in (200, 422)
    if sent.status_code == 200:
        async with house.follow(chat, query="&visible=true") as socket:
            while '"type":"turn_finished"' not in await socket.get_message():
                pass
        found = (await house.http.get(f"{path}/search", params={"q": "needle"})).json()
        [hit] = found["results"]
        assert "\N{REPLACEMENT CHARACTER}" in hit["snippet"]
        assert "\N{GRINNING FACE}" in hit["snippet"]
    for read in (path, f"{path}?page_mode=semantic", f"{path}/timeline-index", "/api/sessions"):
        assert (await house.http.get(read)).status_code == 200
