"""What one unit does: events and changes, all of them or none."""

import msgspec
import pytest
from store_samples import (
    T0,
    chat,
    create,
    ended,
    event,
    everything,
    qid,
    queued,
    run,
    seqs,
    sid,
    started,
    texts,
)

from agentsdock.model.sessions import Head
from agentsdock.store.protocol import (
    DropQueued,
    DropSession,
    PutDiff,
    PutQueued,
    PutSession,
    RunClosed,
    SessionGone,
    Store,
)


async def test_an_event_is_stored_as_it_was_encoded_with_its_number_in_front(store: Store):
    await create(store)
    draft = event("hello")
    (committed,) = await store.append(sid(), [draft])
    assert committed.body == b'{"seq":1,' + draft.body[1:]
    assert msgspec.json.decode(committed.body)["seq"] == 1
    assert await store.read_from(sid(), 0) == [committed]


async def test_numbers_of_a_chat_have_no_gaps_and_chats_count_for_themselves(store: Store):
    await create(store, 0)
    await create(store, 1)
    assert seqs(await store.append(sid(0), [event(), event()])) == [1, 2]
    assert seqs(await store.append(sid(1), [event()])) == [1]
    assert seqs(await store.append(sid(0), [event()])) == [3]


async def test_a_unit_for_an_unknown_chat_is_refused(store: Store):
    with pytest.raises(SessionGone):
        await store.append(sid(), [event()])
    with pytest.raises(SessionGone):
        await store.read_from(sid(), 0)
    with pytest.raises(SessionGone):
        await store.read_page(sid())


async def test_a_failed_unit_leaves_neither_events_nor_changes_nor_a_gap(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    with pytest.raises(Exception, match="open run"):
        await store.claim(run(1), [started(1)], [PutQueued(queued()), PutSession(chat(title="x"))])
    loaded = await store.load()
    assert loaded.queue == ()
    assert loaded.sessions[0].title == "New chat"
    assert loaded.heads[sid()].seq == 1
    assert seqs(await store.append(sid(), [event()])) == [2]


async def test_text_that_is_no_unicode_is_refused_and_harms_nothing(store: Store):
    await create(store)
    with pytest.raises(UnicodeEncodeError):
        await store.append(sid(), [event()], [PutSession(chat(title="half \ud83d"))])
    assert seqs(await store.append(sid(), [event("whole 😀")])) == [1]
    assert (await store.load()).sessions[0].title == "New chat"


async def test_the_head_follows_the_events(store: Store):
    await create(store)
    await store.append(
        sid(),
        [
            event("said", ts="2026-01-02T00:00:00Z"),
            event(kind="tool_started", ts="2026-01-03T00:00:00Z"),
        ],
    )
    head = (await store.load()).heads[sid()]
    assert head == Head(
        seq=2,
        at="2026-01-03T00:00:00Z",
        type="tool_started",
        agent_seq=1,
        agent_at="2026-01-02T00:00:00Z",
        agent_type="assistant_text",
        touched_at="2026-01-02T00:00:00Z",
    )


async def test_old_events_that_are_copied_in_do_not_turn_the_chat_back(store: Store):
    await create(store)
    await store.append(sid(), [event("new", ts="2026-01-02T00:00:00Z")])
    await store.append(sid(), [event("imported", ts="2020-01-01T00:00:00Z")])
    head = (await store.load()).heads[sid()]
    assert (head.seq, head.agent_seq, head.touched_at) == (2, 2, "2026-01-02T00:00:00Z")


async def test_a_chat_without_events_has_an_empty_head(store: Store):
    await create(store)
    assert (await store.load()).heads == {sid(): Head()}


async def test_a_session_is_replaced_as_a_whole(store: Store):
    await create(store)
    await store.append(sid(), (), [PutSession(chat(title="Renamed", pinned=True))])
    assert (await store.load()).sessions == (chat(title="Renamed", pinned=True),)


async def test_the_queue_is_kept_by_chat_and_position(store: Store):
    await create(store, 0)
    await create(store, 1)
    rows = [queued(1, 1, 1.0), queued(2, 0, 2.0), queued(3, 0, 1.0), queued(4, 0, 3.0)]
    await store.append(sid(), (), [PutQueued(row) for row in rows])
    await store.append(sid(), (), [PutQueued(queued(4, 0, 0.5)), DropQueued(qid(2))])
    loaded = await store.load()
    assert [row.queued_id for row in loaded.queue] == [qid(4), qid(3), qid(1)]


async def test_dropping_a_turn_that_does_not_wait_is_no_error(store: Store):
    await create(store)
    assert await store.append(sid(), (), [DropQueued(qid())]) == []


async def test_a_queued_turn_comes_back_with_everything_in_it(store: Store):
    await create(store)
    row = queued(
        file_ids=("a", "b"),
        chat_references=({"session_id": sid(1), "n": [1, None]},),
        paused=True,
        meta={"job_id": "j"},
    )
    await store.append(sid(), (), [PutQueued(row)])
    assert (await store.load()).queue == (row,)


async def test_a_dropped_chat_is_gone_at_once_with_all_that_belongs_to_it(store: Store):
    await create(store, 0)
    await create(store, 1)
    await store.claim(run(), [started()], [PutQueued(queued())])
    await store.append(sid(), (), [DropSession(sid())])
    loaded = await store.load()
    assert [session.id for session in loaded.sessions] == [sid(1)]
    assert (loaded.queue, loaded.open_runs) == ((), ())
    assert await store.run_events(run().id) == (None, [])
    with pytest.raises(SessionGone):
        await store.read_from(sid(), 0)


async def test_nothing_brings_a_dropped_chat_back(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    await store.append(sid(), (), [DropSession(sid())])
    with pytest.raises(SessionGone):
        await store.append(sid(), (), [PutSession(chat())])
    with pytest.raises(SessionGone):
        await store.append(sid(), (), [DropSession(sid())])
    with pytest.raises(SessionGone):
        await store.append(sid(), (), [PutQueued(queued())])
    with pytest.raises(SessionGone):
        await store.finish(run(), [ended()])


async def test_a_unit_that_drops_a_chat_may_not_add_to_it(store: Store):
    await create(store)
    with pytest.raises(ValueError, match="holds no events"):
        await store.append(sid(), [event()], [DropSession(sid())])


async def test_events_with_their_own_time_keep_it(store: Store):
    await create(store)
    (committed,) = await store.append(sid(), [event(ts=T0)])
    assert committed.decode()["ts"] == T0
    assert texts(await everything(store, sid())) == ["hello"]


async def test_a_patch_is_kept_with_the_end_of_its_run_and_belongs_to_its_chat(store: Store):
    await create(store, 0)
    await create(store, 1)
    await store.claim(run(), [started()])
    await store.finish(run(), [ended()], [PutDiff(run().id, b"patch")])
    assert await store.read_diff(sid(0), run().id) == b"patch"
    assert await store.read_diff(sid(1), run().id) is None
    assert await store.read_diff(sid(0), "run_other") is None
    await store.append(sid(0), (), [DropSession(sid(0))])
    with pytest.raises(SessionGone):
        await store.read_diff(sid(0), run().id)


async def test_a_patch_whose_run_cannot_be_finished_is_not_kept(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    await store.finish(run(), [ended()])
    with pytest.raises(RunClosed):
        await store.finish(run(), [ended()], [PutDiff(run().id, b"patch")])
    assert await store.read_diff(sid(), run().id) is None
