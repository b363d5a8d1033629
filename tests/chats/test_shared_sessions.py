"""Two chats of one CLI session: never two CLIs that write to it at once."""

import trio
from scripted_guard import INIT, RESULT

SHARED = "11111111-2222-4333-8444-555555555555"


async def test_the_second_chat_waits_until_the_first_is_done(house, autojump_clock):
    first = await house.new(provider_session_id=SHARED)
    second = await house.new(provider_session_id=SHARED)
    began = await house.post(first, "one")
    process = await house.launcher.next()
    waits = await house.post(second, "two")
    assert waits["queued"] is True
    [deferred] = await house.of_type(second, "turn_deferred")
    assert first in deferred["message"]
    await trio.testing.wait_all_tasks_blocked()
    assert house.registry.require(second).live is None
    process.say(INIT, RESULT)
    process.exit(0)
    await house.terminal(first, began["run_id"])
    await house.launcher.next()
    assert "two" in house.backend.prompts[-1]


async def test_a_fresh_session_is_shared_as_soon_as_the_cli_has_named_it(house, autojump_clock):
    first = await house.new()
    await house.post(first, "one")
    process = await house.launcher.next()
    process.say(INIT)
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(100):
        while (named := house.session(first).cursor.session_id) is None:
            await trio.sleep(1)
    second = await house.new(provider_session_id=named)
    assert (await house.post(second, "two"))["queued"] is True
    process.exit(1)
    await house.launcher.next()


async def test_two_that_are_posted_at_once_do_not_run_at_once(house, autojump_clock):
    chats = [await house.new(provider_session_id=SHARED) for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for chat in chats:
            nursery.start_soon(house.post, chat, "go")
    for left in (2, 1, 0):
        process = await house.launcher.next()
        await trio.testing.wait_all_tasks_blocked()
        assert sum(house.registry.require(chat).busy for chat in chats) == 1
        assert sum(len(house.registry.require(chat).queue) for chat in chats) == left
        process.exit(1)


async def test_chats_of_other_sessions_are_not_held_up(house, autojump_clock):
    first = await house.new(provider_session_id=SHARED)
    other = await house.new(provider_session_id="66666666-2222-4333-8444-555555555555")
    fresh = await house.new()
    for chat in (first, other, fresh):
        assert (await house.post(chat, "go"))["queued"] is False
