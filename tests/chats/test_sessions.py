"""Chats as things: made, listed, changed, read, deleted."""

import json

import pytest
import trio
from house import living, settle
from scripted_guard import INIT, RESULT, text

from agentsdock.chats import registry
from agentsdock.chats.pages import COMPACTED_TYPES
from agentsdock.chats.reading import Reading
from agentsdock.model.errors import BadRequest, Conflict, NotFound
from agentsdock.model.events import Draft
from agentsdock.model.requests import CreateSession, PatchSession, ReadPage

DETAIL_ONLY = {
    "system_prompt",
    "session_id",
    "usage",
    "cursor_session_id",
    "claude_session_id",
    "codex_thread_id",
    "cursor_permission_mode",
    "claude_permission_mode",
    "codex_approval_policy",
    "codex_sandbox_mode",
    "codex_permission_profile",
    "codex_approvals_reviewer",
    "provider_jobs_access",
    "codex_goal",
    "codex_goal_time_budget_seconds",
    "codex_goal_time_budget_exhausted",
}
PRIVATE = {"memory_seed", "memory_fork_reason", "cursor", "claude", "codex", "locked"}


def summaries(house):
    return json.loads(house.chats.summaries())["sessions"]


def titles(house):
    return [session["title"] for session in house.chats.details()]


async def test_a_new_chat_has_the_contract_s_defaults(house, autojump_clock):
    session = await house.chats.create(CreateSession())
    assert session["id"].startswith("sess_")
    assert (session["title"], session["folder"]) == ("New chat", "General")
    assert (session["backend"], session["cwd"]) == ("claude", house.settings.cwd)
    assert (session["model"], session["effort"], session["system_prompt"]) == (None, None, None)
    assert (session["pinned"], session["archived"]) == (False, False)
    assert (session["backend_locked"], session["session_id"]) == (False, None)
    assert (session["latest_event_seq"], session["latest_event_type"]) == (1, "session_created")
    assert await house.types(session["id"]) == ["session_created"]


async def test_a_summary_leaves_out_what_only_the_detail_has(house, autojump_clock):
    await house.new(system_prompt="Be brief.")
    [summary], [detail] = summaries(house), house.chats.details()
    assert set(detail) - set(summary) == DETAIL_ONLY
    assert {key: detail[key] for key in summary} == summary
    assert not PRIVATE & set(detail)


async def test_a_summary_follows_every_event(house, autojump_clock):
    chat = await house.new()
    for step in range(3):
        [before] = summaries(house)
        await house.play(chat, INIT, text("hello"), RESULT)
        [after] = summaries(house)
        assert after["latest_event_seq"] > before["latest_event_seq"], step
        assert after == {key: house.chats.detail(chat)[key] for key in after}
        assert after["latest_agent_event_type"] == "turn_finished"


async def test_a_chat_can_be_bound_to_a_session_of_its_cli(house, autojump_clock):
    session = await house.chats.create(
        CreateSession(backend="cursor", provider_session_id=" abcdefgh-1 ")
    )
    assert (session["session_id"], session["cursor_session_id"]) == ("abcdefgh-1", "abcdefgh-1")
    assert (session["backend_locked"], session["title"]) == (True, "Resumed Cursor abcdefgh")
    await house.post(session["id"])
    process = await house.launcher.next()
    assert process.spec.argv[-2:] == ("--resume", "abcdefgh-1")


@pytest.mark.parametrize("bad", ["-x", "a b", "x" * 257, "a/b"])
async def test_an_id_that_no_cli_would_give_is_refused(house, bad, autojump_clock):
    with pytest.raises(BadRequest):
        await house.chats.create(CreateSession(backend="cursor", provider_session_id=bad))
    with pytest.raises(BadRequest):
        await house.chats.create(CreateSession(backend="nonesuch"))
    assert house.chats.details() == []


async def test_the_list_has_its_sections_in_order_and_new_chats_on_top(house, autojump_clock):
    for fields in (
        {"title": "b1", "folder": "beta"},
        {"title": "A1", "folder": "Alpha"},
        {"title": "pinned", "pinned": True},
        {"title": "archived", "archived": True, "pinned": True},
        {"title": "A2", "folder": "Alpha"},
        {"title": "b2", "folder": "beta"},
    ):
        await house.new(**fields)
    assert titles(house) == ["pinned", "A2", "A1", "b2", "b1", "archived"]
    assert [row["title"] for row in summaries(house)] == titles(house)
    archived = house.chats.details()[-1]
    assert (archived["pinned"], archived["archived"]) == (False, True)


async def test_a_chat_that_changes_its_section_goes_to_the_top_of_it(house, autojump_clock):
    a, b = await house.new(title="a"), await house.new(title="b")
    assert titles(house) == ["b", "a"]
    await house.chats.patch(a, PatchSession(pinned=True))
    await house.chats.patch(b, PatchSession(pinned=True))
    assert titles(house) == ["b", "a"]
    await house.chats.patch(a, PatchSession(pinned=False))
    await house.chats.patch(b, PatchSession(pinned=False))
    assert titles(house) == ["b", "a"]
    await house.chats.patch(a, PatchSession(archived=True))
    await house.chats.patch(a, PatchSession(archived=False))
    assert titles(house) == ["a", "b"]


async def test_the_order_outlives_the_server(tmp_path, autojump_clock):
    async with living(tmp_path) as house:
        for title in "abc":
            await house.new(title=title)
        before = house.chats.details()
    async with living(tmp_path) as house:
        assert house.chats.details() == before


async def test_only_what_was_sent_is_changed(house, monkeypatch, autojump_clock):
    chat = await house.new(title="t", folder="f", model="m", effort="high", system_prompt="s")
    before = house.chats.detail(chat)
    monkeypatch.setattr(registry, "iso_now", lambda: "2999-01-01T00:00:00Z")
    after = await house.chats.patch(chat, PatchSession(title="new"))
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {"title", "updated_at"}
    assert (after["title"], after["updated_at"]) == ("new", "2999-01-01T00:00:00Z")


@pytest.mark.parametrize("value", [None, "", "  "])
async def test_null_or_blank_clears_what_can_be_cleared(house, value, autojump_clock):
    chat = await house.new(
        model="m", effort="high", system_prompt="s", codex_permission_profile="p"
    )
    names = ("model", "effort", "system_prompt", "codex_permission_profile")
    after = await house.chats.patch(chat, PatchSession(**dict.fromkeys(names, value)))
    assert [after[name] for name in names] == [None] * 4


async def test_null_leaves_alone_what_cannot_be_cleared(house, autojump_clock):
    chat = await house.new(title="t", folder="f", cwd="/", pinned=True)
    before = house.chats.detail(chat)
    names = ("title", "folder", "cwd", "backend", "pinned", "archived")
    after = await house.chats.patch(chat, PatchSession(**dict.fromkeys(names)))
    assert [after[name] for name in names] == [before[name] for name in names]


async def test_null_sets_a_policy_back_to_its_default(house, autojump_clock):
    chat = await house.new(cursor_permission_mode="full_access", provider_jobs_access="blocked")
    after = await house.chats.patch(
        chat, PatchSession(cursor_permission_mode=None, provider_jobs_access=None)
    )
    assert (after["cursor_permission_mode"], after["provider_jobs_access"]) == ("default", "full")


async def test_blank_folders_are_the_default_ones(house, autojump_clock):
    chat = await house.new(folder="f", cwd="/")
    after = await house.chats.patch(chat, PatchSession(folder=" ", cwd=" "))
    assert (after["folder"], after["cwd"]) == ("General", house.settings.cwd)


async def test_pinning_and_archiving_leave_their_stamps(house, autojump_clock):
    chat = await house.new()
    pinned = await house.chats.patch(chat, PatchSession(pinned=True))
    assert pinned["pinned_at"]
    again = await house.chats.patch(chat, PatchSession(pinned=True))
    assert again["pinned_at"] == pinned["pinned_at"]
    archived = await house.chats.patch(chat, PatchSession(archived=True))
    assert (archived["pinned"], archived["pinned_at"]) == (False, None)
    assert archived["archived_at"]
    back = await house.chats.patch(chat, PatchSession(archived=False))
    assert (back["archived"], back["archived_at"]) == (False, None)


async def test_another_backend_starts_with_its_own_defaults_unless_told(house, autojump_clock):
    chat = await house.new(model="m", effort="high")
    after = await house.chats.patch(chat, PatchSession(backend="claude"))
    assert (after["backend"], after["model"], after["effort"]) == ("claude", None, None)
    after = await house.chats.patch(chat, PatchSession(backend="codex", model="gpt"))
    assert (after["backend"], after["model"]) == ("codex", "gpt")
    changed = await house.of_type(chat, "backend_changed")
    assert [(event["old"], event["new"]) for event in changed] == [
        ("cursor", "claude"),
        ("claude", "codex"),
    ]
    with pytest.raises(BadRequest):
        await house.chats.patch(chat, PatchSession(backend="nonesuch"))


async def test_a_chat_that_has_run_keeps_its_backend(house, autojump_clock):
    chat = await house.new()
    await house.play(chat, exit_code=1)
    assert house.chats.detail(chat)["backend_locked"]
    with pytest.raises(Conflict):
        await house.chats.patch(chat, PatchSession(backend="claude"))
    assert (await house.chats.patch(chat, PatchSession(backend="cursor")))["backend"] == "cursor"


async def test_a_patch_waits_for_an_admission_in_progress(house, autojump_clock):
    house.runtimes.gate = trio.Event()
    chat = await house.new()
    refused = []

    async def switch():
        try:
            await house.chats.patch(chat, PatchSession(backend="claude"))
        except Conflict as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.post, chat)
        await house.runtimes.admitting.wait()
        nursery.start_soon(switch)
        await settle()
        house.runtimes.gate.set()
    assert len(refused) == 1
    assert house.session(chat).backend == "cursor"


async def test_an_unknown_chat_is_not_found(house, autojump_clock):
    nowhere = "sess_0000000000000000"
    for call in (
        lambda: house.chats.patch(nowhere, PatchSession()),
        lambda: house.chats.mark_read(nowhere, None),
        lambda: house.chats.mark_unread(nowhere),
        lambda: house.page(nowhere),
    ):
        with pytest.raises(NotFound):
            await call()
    with pytest.raises(NotFound):
        house.chats.detail(nowhere)


async def test_what_was_read_moves_forward_only(house, autojump_clock):
    chat = await house.new()
    await house.play(chat, INIT, text("one"), text("two"), RESULT)
    latest = house.chats.detail(chat)["latest_agent_event_seq"]
    read = await house.chats.mark_read(chat, latest - 1)
    assert read["last_read_agent_event_seq"] == latest - 1
    assert (await house.chats.mark_read(chat, 1))["last_read_agent_event_seq"] == latest - 1
    assert (await house.chats.mark_read(chat, None))["last_read_agent_event_seq"] == latest
    assert (await house.chats.mark_read(chat, 10**6))["last_read_agent_event_seq"] == latest
    assert read["last_read_agent_event_at"]


async def test_who_has_read_beyond_the_last_word_of_an_agent_has_nothing_unread(
    house, autojump_clock
):
    chat = await house.new()
    await house.play(chat, INIT, text("one"), RESULT)
    spoken = house.chats.detail(chat)["latest_agent_event_seq"]
    await house.registry.write(house.registry.require(chat), [Draft("file_uploaded", {})])
    there = house.chats.detail(chat)["latest_event_seq"]
    assert there > spoken
    read = await house.chats.mark_read(chat, 10**6)
    assert (read["last_read_agent_event_seq"], read["latest_agent_event_seq"]) == (there, there)
    unread = await house.chats.mark_unread(chat)
    assert unread["last_read_agent_event_seq"] < unread["latest_agent_event_seq"] == spoken


async def test_the_mode_of_a_claude_turn_that_runs_cannot_change(house, autojump_clock):
    house.dispatcher._launcher.backends["claude"] = house.backend
    chat = await house.new(backend="claude", claude_permission_mode="plan")
    await house.post(chat)
    process = await house.launcher.next()
    await house.chats.patch(chat, PatchSession(claude_permission_mode="plan"))
    for other in ("auto", None):
        with pytest.raises(Conflict):
            await house.chats.patch(chat, PatchSession(claude_permission_mode=other))
    process.say(INIT, text("one"), RESULT)
    process.exit(0)
    await house.terminal(chat)
    after = await house.chats.patch(chat, PatchSession(claude_permission_mode=None))
    assert after["claude_permission_mode"] == "default"


async def test_a_chat_that_is_being_deleted_takes_no_changes(house, autojump_clock):
    chat = await house.new()
    house.registry.require(chat).deleting = True
    for change in (
        lambda: house.chats.patch(chat, PatchSession(title="t")),
        lambda: house.chats.mark_read(chat, None),
        lambda: house.chats.mark_unread(chat),
    ):
        with pytest.raises(Conflict):
            await change()


async def test_a_chat_can_be_marked_unread_until_it_is_read(house, autojump_clock):
    chat = await house.new()
    assert (await house.chats.mark_unread(chat))["last_read_agent_event_seq"] == 0
    await house.play(chat, INIT, text("one"), RESULT)
    await house.chats.mark_read(chat, None)
    unread = await house.chats.mark_unread(chat)
    assert unread["manual_unread"]
    assert unread["last_read_agent_event_seq"] == unread["latest_agent_event_seq"] - 1
    assert not (await house.chats.mark_read(chat, None))["manual_unread"]


async def test_a_page_says_what_it_leaves_out(house, autojump_clock):
    chat = await house.new()
    await house.play(chat, INIT, *(text(str(n)) for n in range(10)), b"prose\n")
    everything = await house.events(chat)
    total = len(everything)
    newest = await house.page(chat, limit=4)
    assert newest["events"] == everything[-4:]
    assert (newest["events_omitted_before"], newest["events_omitted_after"]) == (total - 4, 0)
    assert (newest["event_count"], newest["latest_seq"]) == (total, total)
    forward = await house.page(chat, after=2, limit=4)
    assert forward["events"] == everything[2:6]
    assert (forward["events_omitted_before"], forward["events_omitted_after"]) == (0, total - 6)
    older = await house.page(chat, before=5, limit=2)
    assert older["events"] == everything[2:4]
    visible = await house.page(chat, visible=True)
    assert "raw_event" in [event["type"] for event in everything]
    assert "raw_event" not in [event["type"] for event in visible["events"]]
    compact = await house.page(chat, compact=True)
    kinds = {event["type"] for event in compact["events"]}
    assert kinds == {event["type"] for event in everything} - COMPACTED_TYPES
    assert newest["session"] == house.chats.detail(chat)


@pytest.mark.parametrize("moment", ["before the read", "after the read"])
async def test_who_goes_on_from_a_page_misses_nothing(house, moment, autojump_clock):
    """Something is written while the page is read."""
    chat = await house.new()
    await house.post(chat)
    await house.launcher.next()
    await settle()
    read_page = house.store.read_page

    async def read_meanwhile(*args, **kwargs):
        house.store.read_page = read_page
        if moment == "before the read":
            await house.post(chat, "second")
        found = await read_page(*args, **kwargs)
        if moment == "after the read":
            await house.post(chat, "second")
        return found

    house.store.read_page = read_meanwhile
    page = await house.page(chat)
    assert page["events"][-1]["seq"] == page["latest_seq"] == page["event_count"]
    missing = (await house.events(chat))[page["latest_seq"] :]
    assert [event["type"] for event in missing] == ["turn_queued"]
    assert [row["prompt"] for row in page["queued_turns"]] == ["second"]


async def test_who_goes_on_from_a_semantic_page_misses_nothing(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    await house.launcher.next()
    await settle()
    reading = Reading(house.settings, house.store, house.registry)
    spans = house.store.spans

    async def read_meanwhile(*args):
        await house.post(chat, "second")
        return await spans(*args)

    house.store.spans = read_meanwhile
    page = json.loads(await reading.semantic_page(chat, ReadPage()))
    missing = (await house.events(chat))[page["latest_seq"] :]
    assert [event["type"] for event in missing] == ["turn_queued"]
    assert [row["prompt"] for row in page["queued_turns"]] == ["second"]


async def test_a_page_shows_the_queue_as_the_user_wrote_it(house, autojump_clock):
    chat = await house.new()
    await house.post(chat)
    await house.launcher.next()
    await house.post(chat, "the whole prompt", display_prompt="shown", model="auto")
    [row] = (await house.page(chat))["queued_turns"]
    assert (row["prompt"], row["display_prompt"], row["model"]) == ("shown", "shown", "auto")
    assert (row["paused"], row["pause_reason"], row["position"]) == (False, None, 1)
