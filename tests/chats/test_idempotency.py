"""A message with a key is accepted once, whatever the network and the server do."""

import pytest
import trio
from house import living, settle
from scripted_guard import INIT, RESULT

from agentsdock.chats import admission
from agentsdock.model.errors import Conflict, Unavailable
from agentsdock.model.requests import PatchSession
from agentsdock.store.protocol import KeepAnswer, StoreFull


async def test_a_repeat_gets_the_first_answer_and_starts_nothing(house, autojump_clock):
    chat = await house.new()
    first = await house.post(chat, key="k")
    process = await house.launcher.next()
    process.say(INIT, RESULT)
    process.exit(0)
    await house.terminal(chat)
    assert await house.post(chat, key="k") == first
    assert first["event"]["type"] == "turn_started"
    assert (await house.types(chat)).count("turn_started") == 1


async def test_a_repeat_of_a_queued_message_gets_its_first_answer(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    first = await house.post(chat, "second", key="k")
    assert await house.post(chat, "second", key="k") == first
    assert (first["queued"], first["event"]["type"]) == (True, "turn_queued")
    assert len(await house.rows(chat)) == 1


async def test_the_same_key_with_another_body_is_refused(house, autojump_clock):
    chat = await house.new()
    await house.post(chat, "one", key="k")
    with pytest.raises(Conflict) as refused:
        await house.post(chat, "two", key="k")
    assert refused.value.code == "idempotency_key_reused"
    assert await house.rows(chat) == []


async def test_a_key_counts_for_its_chat_only(house, autojump_clock):
    one, two = await house.new(), await house.new()
    await house.post(one, key="k")
    assert not (await house.post(two, "other", key="k"))["queued"]


async def test_a_key_outlives_the_server(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        chat = await house.new()
        first = await house.post(chat, key="k")
        await house.launcher.next()
    async with living(tmp_path) as house:
        assert await house.post(chat, key="k") == first
        with pytest.raises(Conflict):
            await house.post(chat, "other", key="k")
        await settle()
        assert house.launcher.launched == []


async def test_repeats_that_come_at_once_are_one(house, autojump_clock):
    chat = await house.new()
    answers = []

    async def post():
        answers.append(await house.post(chat, key="k"))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(post)
    assert len(answers) == 10
    assert all(answer == answers[0] for answer in answers)
    assert (await house.types(chat)).count("turn_started") == 1
    assert await house.rows(chat) == []


async def test_a_repeat_waits_for_the_first_even_if_that_one_was_cut_off(house, autojump_clock):
    house.runtimes.gate = trio.Event()
    chat = await house.new()
    answers = []

    async def repeat():
        answers.append(await house.post(chat, key="k"))

    async with trio.open_nursery() as first:
        first.start_soon(lambda: house.post(chat, key="k"))
        await house.runtimes.admitting.wait()
        first.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(repeat)
        await settle()
        assert answers == []
        house.runtimes.gate.set()
    assert not answers[0]["queued"]
    assert (await house.types(chat)).count("turn_started") == 1


async def test_a_refusal_is_not_kept(house, autojump_clock):
    chat = await house.new()
    house.runtimes.trouble = "not usable"
    with pytest.raises(Unavailable):
        await house.post(chat, key="k")
    house.runtimes.trouble = None
    assert not (await house.post(chat, key="k"))["queued"]


@pytest.mark.parametrize("queued", [False, True])
async def test_a_crash_between_the_turn_and_its_whole_answer_starts_nothing_twice(
    tmp_path, queued, autojump_clock
):
    async with living(tmp_path) as house:
        chat = await house.new()
        if queued:
            await house.post(chat, "before")
        append = house.store.append

        async def lose_the_whole_answer(session_id, events=(), changes=()):
            if not events and any(isinstance(change, KeepAnswer) for change in changes):
                raise StoreFull("as if the server had died here")
            return await append(session_id, events, changes)

        house.store.append = lose_the_whole_answer
        first = await house.post(chat, key="k")
        await house.launcher.next()
    async with living(tmp_path) as house:
        await settle()
        repeated = await house.post(chat, key="k")
        name = "queued_id" if queued else "run_id"
        assert repeated[name] == first[name]
        assert (repeated["queued"], repeated["event"]) == (queued, None)
        started = await house.of_type(chat, "turn_started")
        assert [event["prompt"] for event in started] == [*["before"] * queued, "do it"]


async def test_a_key_is_free_again_after_a_day(house, monkeypatch, autojump_clock):
    chat = await house.new()
    monkeypatch.setattr(admission, "ANSWER_SECONDS", -1.0)
    await house.post(chat, key="k")
    assert (await house.post(chat, "another", key="k"))["queued"]


async def test_a_repeat_answers_although_the_chat_has_changed_since(house, autojump_clock):
    chat = await house.new()
    first = await house.post(chat, key="k")
    await house.chats.patch(chat, PatchSession(archived=True))
    assert await house.post(chat, key="k") == first


async def test_requests_without_a_key_are_never_the_same(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    assert (await house.post(chat))["queued"]
