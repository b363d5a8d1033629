"""The queue of a real server with real processes: races, crashes, other chats' rows."""

import random

import httpx
import msgspec
import pytest
import trio

from agentsdock.testing.server import running_server

TERMINALS = ("turn_finished", "turn_stopped")
QUICK = "[[fake delay=0.01 events=3]]"


class Chat:
    """A chat of the server, its queue, and its timeline as it grows."""

    def __init__(self, house, id):
        self.house = house
        self.id = id
        self.place = f"/api/sessions/{id}"

    async def post(self, prompt):
        return await self.call("POST", "/turns", {"prompt": prompt})

    async def call(self, method, path, body=None, status=200):
        answer = await self.house.http.request(method, self.place + path, json=body)
        assert status in (None, answer.status_code), answer.text
        return answer.json() if status == 200 else answer

    async def change(self, row, method="PATCH", path="", body=None, status=200):
        return await self.call(method, f"/queue/{row}{path}", body, status)

    async def rows(self):
        return (await self.call("GET", ""))["queued_turns"]

    async def events(self, *types):
        events = (await self.call("GET", "?limit=1000"))["events"]
        return [event for event in events if not types or event["type"] in types]

    async def started(self):
        return [event["prompt"] for event in await self.events("turn_started")]

    async def until(self, enough, after=0):
        """The timeline after a sequence number, once it is enough."""
        seen = []
        async with self.house.follow(self.id, after=after) as socket:
            while not (seen and enough(seen)):
                seen.append(msgspec.json.decode(await socket.get_message()))
        return seen

    async def until_last(self, type, after=0):
        return await self.until(lambda seen: seen[-1]["type"] == type, after)

    async def until_idle(self):
        """The latest sequence number, once nothing waits and every run has ended."""
        page = await self.page()
        while not is_over(before := page, page := await self.page()):
            if not is_over(before, before):
                await self.until(len, before["latest_seq"])
        return page["latest_seq"]

    async def page(self):
        return await self.call("GET", "?limit=1000")


def is_over(before, page):
    """The rows in a page may be later than its events, so the page before it counts too."""
    types = [event["type"] for event in page["events"]]
    ended = sum(types.count(type) for type in TERMINALS)
    waiting = before["queued_turns"] or page["queued_turns"]
    return not waiting and types.count("turn_started") == ended


@pytest.fixture
async def chat(house):
    return Chat(house, await house.chat())


async def running(chat, steer="hang=1"):
    await chat.post(f"[[fake {steer}]]")
    await chat.until_last("provider_session")


async def test_what_was_acknowledged_is_what_runs(chat):
    """Edits and deletions that meet the start of their row, at any moment."""
    dice = random.Random(14)
    expected = []
    for number in range(16):
        first, second = f"{QUICK} first {number}", f"{QUICK} second {number}"
        await chat.post(first)
        answer = await chat.post(second)
        expected += [first, second]
        if answer["queued"]:
            row = answer["queued_id"]
            await trio.sleep(dice.uniform(0, 0.12))
            if number % 2:
                edited = f"{QUICK} edited {number}"
                reply = await chat.change(row, body={"prompt": edited}, status=None)
                if reply.status_code == 200:
                    expected[-1] = edited
            else:
                reply = await chat.change(row, "DELETE", status=None)
                if reply.status_code == 200:
                    expected.pop()
            assert reply.status_code in (200, 404), reply.text
        await chat.until_idle()
    assert await chat.started() == expected


async def test_after_a_stop_at_the_end_of_a_turn_nothing_starts(chat):
    dice = random.Random(15)
    for _ in range(8):
        latest = await chat.until_idle()
        for _ in range(4):
            await chat.post(QUICK)
        await chat.until_last("turn_finished", latest)
        await trio.sleep(dice.uniform(0, 0.03))
        assert (await chat.call("POST", "/stop"))["stopped"]
        begun, rows = len(await chat.started()), await chat.rows()
        assert all(row["pause_reason"] == "stopped" for row in rows)
        if rows:
            assert (await chat.post("late"))["position"] == len(rows) + 1
            assert len(await chat.started()) == begun
            assert not (await chat.house.http.get("/api/health")).json()["active"]
        for row in reversed(await chat.rows()):
            await chat.change(row["queued_id"], "DELETE")


async def test_ten_force_sends_of_a_stubborn_turn_run_one_row_once(chat, tmp_path):
    log = tmp_path / "agents.log"
    await running(chat, f"hang=1 ignoreterm=1 log={log}")
    first, second = [
        (await chat.post(f"[[fake hang=1 log={log}]] {n}"))["queued_id"] for n in (1, 2)
    ]
    replies = []

    async def press(row):
        replies.append(await chat.change(row, "POST", "/run-now", status=None))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(press, second)
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.text for reply in replies}) == 1
    assert replies[0].json()["interrupted"]
    await chat.change(first, "POST", "/run-now", status=409)
    seen = await chat.until(lambda seen: [e["type"] for e in seen].count("provider_session") == 2)
    kinds = ["turn_queue_run_now", "turn_finished", "turn_started", "process_started"]
    order = [event["type"] for event in seen if event["type"] in kinds]
    assert order == ["turn_started", "process_started", *kinds]
    [ended] = [event for event in seen if event["type"] == "turn_finished"]
    assert (ended["tree_empty"], ended["superseded_by_queued_id"]) == (True, second)
    assert [row["queued_id"] for row in await chat.rows()] == [first]
    assert (await chat.change(second, "POST", "/run-now"))["interrupted"]
    starts = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    assert [step["step"] for step in starts].count("start") == 2


async def test_a_turn_that_has_not_begun_is_not_interrupted(chat):
    await chat.post("[[fake noinit=1 hang=1 first=60]]")
    row = (await chat.post("next"))["queued_id"]
    refused = await chat.change(row, "POST", "/run-now", status=409)
    assert refused.json()["detail"]["code"] == "force_send_deferred"
    accepts = {"accept_deferred_queue_response": True}
    answer = await chat.change(row, "POST", "/run-now", accepts)
    assert (answer["ok"], answer["deferred"], answer["retryable"]) == (False, True, True)
    assert len(await chat.events("turn_deferred")) == 1
    assert not await chat.events(*TERMINALS, "turn_queue_run_now")
    await chat.call("POST", "/stop")


async def test_a_row_of_another_chat_is_not_found(house, chat):
    other = Chat(house, await house.chat())
    places = [chat, other]
    rows = []
    for place in places:
        await running(place)
        rows.append((await place.post("waiting"))["queued_id"])
    before = [await place.call("GET", "") for place in places]
    for place, row in ((chat, rows[1]), (other, rows[0]), (Chat(house, "sess_0"), rows[0])):
        for method, path, body in (
            ("PATCH", "", {"prompt": "mine now"}),
            ("DELETE", "", None),
            ("POST", "/move", {"direction": "up"}),
            ("POST", "/run-now", None),
        ):
            answer = await place.change(row, method, path, body, status=404)
            assert answer.json()["detail"] in ("session not found", "queued message not found")
    assert [await place.call("GET", "") for place in places] == before
    await chat.change(rows[0], body={"file_ids": ["file_of_another_chat"]}, status=404)


@pytest.mark.parametrize("paused", [True, False])
def test_a_crash_leaves_the_queue_as_it_was_last_acknowledged(environment, tmp_path, paused):
    dice = random.Random(17 + paused)
    acknowledged, whole = [], []
    state, chat_id = tmp_path / "state", None

    with running_server(state, environment) as server, client(server) as http:
        chat_id = http.post("/api/sessions", json={}).json()["session"]["id"]
        place = f"/api/sessions/{chat_id}"
        http.post(f"{place}/turns", json={"prompt": "[[fake hang=1]]"})
        for number in range(12):
            row = http.post(f"{place}/turns", json={"prompt": f"{QUICK} {number}"}).json()
            acknowledged.append((row["queued_id"], f"{QUICK} {number}"))
        if paused:
            http.post(f"{place}/stop")
        for number in range(40):
            at = dice.randrange(len(acknowledged))
            row, _ = acknowledged[at]
            match dice.choice(["edit", "up", "down", "delete" if number % 8 == 0 else "edit"]):
                case "edit":
                    answer = http.patch(f"{place}/queue/{row}", json={"prompt": f"edit {number}"})
                    acknowledged[at] = (row, f"edit {number}")
                case "delete":
                    answer = http.delete(f"{place}/queue/{row}")
                    acknowledged.pop(at)
                case direction:
                    other = max(at + (1 if direction == "down" else -1), 0)
                    answer = http.post(f"{place}/queue/{row}/move", json={"direction": direction})
                    moved = acknowledged.pop(at)
                    acknowledged.insert(other, moved)
            assert answer.status_code == 200, answer.text
        server.process.kill()
        server.process.wait()

    with running_server(state, environment) as server, client(server) as http:
        place = f"/api/sessions/{chat_id}"
        page = before = http.get(place, params={"limit": 1000}).json()
        while not paused and not is_over(before, page):  # the queue goes on by itself
            before, page = page, http.get(place, params={"limit": 1000}).json()
        begun = [e for e in page["events"] if e["type"] == "turn_started" and "queued_id" in e]
        whole = [(e["queued_id"], e["prompt"]) for e in begun]
        rows = [(row["queued_id"], row["prompt"]) for row in page["queued_turns"]]
        assert (rows, whole) == ((acknowledged, []) if paused else ([], acknowledged))
        assert all(row["pause_reason"] == "stopped" for row in page["queued_turns"])


def client(server):
    return httpx.Client(base_url=server.url, trust_env=False, timeout=30)
