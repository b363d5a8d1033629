"""Messages that wait: behind a turn of their chat, for pressure to end, for a usable runtime."""

import pytest
import trio
from attrs import evolve
from house import finishing, living, make_settings, settle
from scripted_guard import INIT, RESULT, ScriptedLauncher, text

from agentsdock.chats import pressure
from agentsdock.model.errors import BadRequest, Conflict, NotFound, PromptTooLarge, Unavailable
from agentsdock.model.requests import PatchSession


@pytest.fixture
def memory(monkeypatch):
    """What keeps turns waiting besides their number; a text while it lasts."""
    lack = {"reason": None}
    real = pressure.reason_to_wait
    monkeypatch.setattr(pressure, "reason_to_wait", lambda s, live: lack["reason"] or real(s, live))
    return lack


def prompts(events):
    return [event["prompt"] for event in events]


async def test_messages_of_one_chat_run_one_after_another_in_order(house, autojump_clock):
    chat = await house.new()
    first = await house.post(chat, "0")
    answers = [await house.post(chat, str(n)) for n in (1, 2, 3)]
    assert not first["queued"]
    assert [(a["queued"], a["position"]) for a in answers] == [(True, 1), (True, 2), (True, 3)]
    assert [a["event"]["type"] for a in answers] == ["turn_queued"] * 3
    for n in range(4):
        process = await house.launcher.next()
        assert len(house.launcher.launched) == n + 1
        process.say(INIT, RESULT)
        process.exit(0)
    await settle()
    assert prompts(await house.of_type(chat, "turn_started")) == ["0", "1", "2", "3"]
    assert await house.rows(chat) == []


async def test_a_started_turn_names_the_row_that_it_was(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    queued = await house.post(chat, "second")
    [row] = await house.rows(chat)
    assert (row["queued_id"], row["position"]) == (queued["queued_id"], 1)
    process.exit(1)
    await house.launcher.next()
    [first, second] = await house.of_type(chat, "turn_started")
    assert "queued_id" not in first
    assert second["queued_id"] == queued["queued_id"]


async def test_chats_run_beside_each_other_up_to_the_cap(tmp_path, autojump_clock):
    async with living(tmp_path, max_active_runs=2) as house:
        chats = [await house.new() for _ in range(4)]
        answers = [await house.post(chat) for chat in chats]
        assert [answer["queued"] for answer in answers] == [False, False, True, True]
        await settle()
        assert len(house.launcher.launched) == 2
        for chat in chats[2:]:
            assert (await house.types(chat))[1:] == ["turn_queued", "turn_deferred"]
            [deferred] = await house.of_type(chat, "turn_deferred")
            assert "2 turns are running" in deferred["message"]


async def test_the_longest_waiting_starts_first_when_a_turn_ends(tmp_path, autojump_clock):
    async with living(tmp_path, max_active_runs=1) as house:
        chats = [await house.new() for _ in range(6)]
        for chat in chats:
            await house.post(chat)
        for number, chat in enumerate(chats):
            process = await house.launcher.next()
            await settle()
            assert len(house.launcher.launched) == number + 1
            assert house.registry.require(chat).busy
            process.exit(1)


async def test_a_new_message_does_not_overtake_one_that_waits_for_pressure_to_end(
    house, memory, autojump_clock
):
    waiting, new = await house.new(), await house.new()
    memory["reason"] = "Only 100 MB are left."
    await house.post(waiting)
    await settle()
    memory["reason"] = None
    assert (await house.post(new))["queued"]
    await house.launcher.next()
    assert house.registry.require(waiting).busy
    await house.launcher.next()
    assert house.registry.require(new).busy


async def test_a_head_that_is_being_started_takes_one_place_only(tmp_path, autojump_clock):
    async with living(tmp_path, max_active_runs=2) as house:
        slow, other = await house.new(), await house.new()
        await house.post(slow)
        process = await house.launcher.next()
        await house.post(slow, "second")
        house.runtimes.gate = trio.Event()
        house.runtimes.admitting = trio.Event()
        process.exit(1)
        await house.runtimes.admitting.wait()
        for _ in range(5):
            house.dispatcher.slots.wake()
            await settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.post, other)
            await settle()
            house.runtimes.gate.set()
        assert house.registry.require(slow).busy
        assert house.registry.require(other).busy


async def test_low_memory_makes_turns_wait_and_is_looked_at_again(house, memory, autojump_clock):
    memory["reason"] = "Only 100 MB are left."
    first, second = await house.new(), await house.new()
    assert (await house.post(first))["queued"]
    assert (await house.post(second))["queued"]
    await trio.sleep(100)
    for chat in (first, second):
        assert (await house.types(chat)).count("turn_deferred") == 1
    assert house.launcher.launched == []
    memory["reason"] = None
    began = trio.current_time()
    await house.launcher.next()
    await house.launcher.next()
    assert trio.current_time() - began <= 5


async def test_a_row_that_waited_behind_a_turn_is_deferred_once_when_pressure_comes(
    house, memory, autojump_clock
):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    memory["reason"] = "Only 100 MB are left."
    process.exit(1)
    await trio.sleep(60)
    assert (await house.types(chat)).count("turn_deferred") == 1
    memory["reason"] = None
    await house.launcher.next()


async def test_a_row_of_a_chat_that_is_archived_in_time_is_not_deferred(
    house, memory, autojump_clock
):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    memory["reason"] = "Only 100 MB are left."
    async with trio.open_nursery() as nursery, house.registry.require(chat).lock:
        nursery.start_soon(house.chats.patch, chat, PatchSession(archived=True))
        await settle()
        process.exit(1)
        await settle()
    await settle()
    assert "turn_deferred" not in await house.types(chat)


async def test_pressure_that_ends_while_its_deferral_is_written_is_not_missed(
    house, memory, autojump_clock
):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    gate = trio.Event()
    append = house.store.append

    async def slow_append(session_id, events, changes):
        if any(event.type == "turn_deferred" for event in events):
            await gate.wait()
        return await append(session_id, events, changes)

    memory["reason"] = "Only 100 MB are left."
    house.store.append = slow_append
    process.exit(1)
    await trio.sleep(20)
    memory["reason"] = None
    gate.set()
    await settle()
    await trio.sleep(6)  # memory is looked at every 5 seconds
    assert len(house.launcher.launched) == 2


async def test_a_head_whose_runtime_is_not_usable_waits_and_is_tried_again(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    house.runtimes.trouble = "The CLI is not signed in."
    process.exit(1)
    await trio.sleep(500)
    assert len(house.launcher.launched) == 1
    [deferred] = await house.of_type(chat, "turn_deferred")
    assert deferred["message"] == "The CLI is not signed in."
    assert len(await house.rows(chat)) == 1
    house.runtimes.trouble = None
    began = trio.current_time()
    await house.launcher.next()
    assert trio.current_time() - began <= house.settings.busy_retry_seconds


async def test_a_head_that_waits_for_its_runtime_holds_no_other_chat(house, autojump_clock):
    stuck, free = await house.new(), await house.new()
    await house.post(stuck)
    process = await house.launcher.next()
    await house.post(stuck, "second")
    house.runtimes.trouble = "not usable"
    process.exit(1)
    await settle()
    house.runtimes.trouble = None
    assert not (await house.post(free))["queued"]


async def test_a_runtime_that_is_not_usable_refuses_a_new_message(house, autojump_clock):
    chat = await house.new()
    house.runtimes.trouble = "The CLI is not signed in."
    with pytest.raises(Unavailable):
        await house.post(chat)
    assert await house.types(chat) == ["session_created"]
    assert not house.session(chat).locked
    house.runtimes.trouble = None
    assert not (await house.post(chat))["queued"]


async def test_a_head_that_can_never_start_leaves_the_queue_and_says_why(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    refused = await house.post(chat, "second", backend="cursor")
    await house.post(chat, "third")
    queue = house.registry.require(chat).queue
    queue[0] = evolve(queue[0], backend="claude")
    process.exit(1)
    await house.launcher.next()
    events = await house.events(chat)
    error = next(event for event in events if event.get("code") == "launch_refused")
    gone = next(event for event in events if event["type"] == "turn_unqueued")
    assert error["queued_id"] == gone["queued_id"] == refused["queued_id"]
    assert gone["reason"] == "launch_refused"
    assert gone["message"] == error["message"]
    assert (gone["prompt"], gone["remaining"]) == ("second", 1)
    started = [event["prompt"] for event in events if event["type"] == "turn_started"]
    assert started == ["do it", "third"]
    assert (await house.store.load()).queue == ()


async def test_a_bug_in_preparing_a_head_keeps_it_and_harms_no_other_chat(house, autojump_clock):
    chat, other = await house.new(), await house.new()
    await house.post(chat)
    process = await house.launcher.next()
    await house.post(chat, "second")
    house.backend.bug = ZeroDivisionError("of ours")
    process.exit(1)
    await settle()
    house.backend.bug = None
    assert len(await house.rows(chat)) == 1
    assert not (await house.post(other))["queued"]
    await house.launcher.next()
    await trio.sleep(house.settings.busy_retry_seconds)
    await settle()
    assert await house.rows(chat) == []


async def test_what_cannot_be_accepted_is_refused_and_nothing_is_stored(house, autojump_clock):
    chat, archived = await house.new(), await house.new()
    await house.chats.patch(archived, PatchSession(archived=True))
    for kind, place, options in (
        (BadRequest, chat, {"prompt": "  \n"}),
        (PromptTooLarge, chat, {"prompt": "x" * 3000}),
        (BadRequest, chat, {"backend": "nonesuch"}),
        (NotFound, chat, {"file_ids": ("file_1",)}),
        (BadRequest, chat, {"chat_references": ({},)}),
        (NotFound, "sess_0000000000000000", {}),
        (Conflict, archived, {}),
    ):
        with pytest.raises(kind):
            await house.post(place, **{"prompt": "hello", **options})
    assert await house.types(chat) == ["session_created"]
    assert (await house.store.load()).open_runs == ()
    assert house.launcher.launched == []


async def test_a_backend_can_be_switched_by_a_message_until_the_chat_is_bound(
    house, autojump_clock
):
    chat = await house.new(backend="claude", model="opus", effort="high")
    await house.post(chat, backend="cursor", model="auto")
    process = await house.launcher.next()
    session = house.session(chat)
    assert (session.backend, session.model, session.effort) == ("cursor", "auto", None)
    [changed] = await house.of_type(chat, "backend_changed")
    assert (changed["old"], changed["new"]) == ("claude", "cursor")
    assert (await house.types(chat))[1] == "turn_started"
    process.exit(1)
    await house.terminal(chat)
    with pytest.raises(Conflict):
        await house.post(chat, backend="claude")


async def test_an_empty_model_or_effort_clears_what_the_chat_had(house, autojump_clock):
    chat = await house.new(model="auto", effort="HIGH")
    assert house.session(chat).effort == "high"
    await house.play(chat, INIT, RESULT)
    assert house.session(chat).model == "auto"
    await house.post(chat, model="", effort="")
    [_, started] = await house.of_type(chat, "turn_started")
    assert (started["model"], started["effort"]) == (None, None)
    assert (house.session(chat).model, house.session(chat).effort) == (None, None)


@pytest.mark.parametrize(
    ("prompt", "display", "title"),
    [
        ("  Fix the tests\nplease", None, "Fix the tests"),
        ("x" * 100, None, "x" * 72),
        ("the whole prompt", "what is shown", "what is shown"),
    ],
)
async def test_a_new_chat_takes_its_title_from_the_first_message(
    house, prompt, display, title, autojump_clock
):
    chat = await house.new()
    named = await house.new(title="Mine")
    for place in (chat, named):
        await house.post(place, prompt, display_prompt=display)
    assert house.session(chat).title == title
    assert house.session(named).title == "Mine"


async def test_a_folder_that_is_not_there_is_replaced_and_said(house, tmp_path, autojump_clock):
    chat = await house.new(cwd=str(tmp_path / "gone"))
    await house.post(chat)
    process = await house.launcher.next()
    [fallback] = await house.of_type(chat, "cwd_fallback")
    assert fallback["requested_cwd"] == str(tmp_path / "gone")
    assert fallback["cwd"] == process.spec.cwd == house.settings.cwd


async def test_the_guard_gets_the_limits_of_the_backend(tmp_path, autojump_clock):
    cursor = make_settings(tmp_path).backends["cursor"]
    limits = evolve(cursor.limits, stop_grace_seconds=7.0, teardown_grace_seconds=8.0)
    async with living(tmp_path, backends={"cursor": evolve(cursor, limits=limits)}) as house:
        chat = await house.new()
        await house.post(chat)
        process = await house.launcher.next()
        assert (process.spec.grace, process.spec.teardown_grace) == (7.0, 8.0)
        [started] = await house.of_type(chat, "turn_started")
        assert process.spec.marker == f"identity:{started['run_id']}"


async def test_what_a_cli_prints_of_our_secrets_is_not_shown(tmp_path, autojump_clock):
    secrets = {"CURSOR_API_KEY": "key-0123456789", "PASSWORD": "short"}
    async with living(tmp_path, token="token-0123456789", environ=secrets) as house:
        chat = await house.new()
        words = "these are more than thirty-two letters of the user's own"
        await house.post(chat, words)
        process = await house.launcher.next()
        process.complain(f"bad key-0123456789, token-0123456789, {words}, short\n".encode())
        process.exit(1)
        await house.terminal(chat)
        [error] = await house.of_type(chat, "error")
        for secret in ("key-0123", "token-0123", "letters of the user"):
            assert secret not in error["stderr_tail"]
            assert secret not in error["message"]
        assert "short" in error["stderr_tail"]


async def test_a_row_behind_its_own_chat_s_turn_is_not_deferred(tmp_path, autojump_clock):
    async with living(tmp_path, max_active_runs=1) as house:
        chat = await house.new()
        await house.post(chat)
        await house.post(chat, "second")
        assert "turn_deferred" not in await house.types(chat)


async def test_a_request_that_is_cut_off_loses_nothing(house, autojump_clock):
    house.runtimes.gate = trio.Event()
    chat = await house.new()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.post, chat)
        await house.runtimes.admitting.wait()
        nursery.cancel_scope.cancel()
    house.runtimes.gate.set()
    process = await house.launcher.next()
    process.say(INIT, RESULT)
    process.exit(0)
    assert (await house.terminal(chat))["code"] is None
    assert (await house.types(chat)).count("turn_started") == 1


async def test_fifty_turns_at_once_each_have_their_one_ending(tmp_path, autojump_clock):
    launcher = ScriptedLauncher(finishing(INIT, *(text(str(n)) for n in range(20)), RESULT))
    async with living(tmp_path, launcher=launcher, max_active_runs=7) as house:
        chats = [await house.new() for _ in range(10)]

        async def talk(chat):
            for n in range(5):
                await house.post(chat, str(n))

        async with trio.open_nursery() as nursery:
            for chat in chats:
                nursery.start_soon(talk, chat)
        with trio.fail_after(1000):
            while any(chat.busy or chat.queue for chat in house.registry):
                await trio.sleep(1)
        for chat in chats:
            events = await house.events(chat)
            types = [event["type"] for event in events]
            assert types.count("assistant_text") == 100
            assert [e["prompt"] for e in events if e["type"] == "turn_started"] == list("01234")
            assert [e["code"] for e in events if e["type"] == "turn_finished"] == [None] * 5
        assert launcher.all_closed
        assert house.dispatcher.slots.taken == 0
