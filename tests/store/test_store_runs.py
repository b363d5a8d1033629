"""One open run per chat, one terminal event per run, and only the holder may write."""

import pytest
import trio
from attrs import evolve
from store_samples import create, ended, event, rid, run, seqs, sid, started

from agentsdock.model.turns import RunState
from agentsdock.store.protocol import RunClosed, RunExists, Store


async def test_a_chat_has_at_most_one_open_run(store: Store):
    await create(store, 0)
    await create(store, 1)
    await store.claim(run(0), [started(0)])
    with pytest.raises(RunExists):
        await store.claim(run(1), [started(1)])
    await store.claim(run(2, session=1), [started(2)])
    await store.finish(run(0), [ended(0)])
    await store.claim(run(1), [started(1)])
    assert {found.id for found in (await store.load()).open_runs} == {rid(1), rid(2)}


async def test_a_run_id_is_used_once(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    await store.finish(run(), [ended()])
    with pytest.raises(RunExists):
        await store.claim(run(), [started()])


async def test_a_run_is_finished_once(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    assert seqs(await store.finish(run(), [event(), ended()])) == [2, 3]
    with pytest.raises(RunClosed):
        await store.finish(run(), [ended()])
    with pytest.raises(RunClosed):
        await store.renew(run())
    assert (await store.load()).heads[sid()].seq == 3


async def test_of_many_that_finish_at_once_one_succeeds(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    outcomes = []

    async def finish():
        try:
            outcomes.append(await store.finish(run(), [ended()]))
        except RunClosed:
            outcomes.append(None)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(finish)
    assert sum(outcome is not None for outcome in outcomes) == 1
    assert (await store.load()).heads[sid()].seq == 2


@pytest.mark.parametrize(
    "events", [[], [event()], [ended(), ended()], [ended(), ended(0, "turn_stopped")], [ended(1)]]
)
async def test_finishing_needs_exactly_one_terminal_event_of_the_run(store: Store, events):
    await create(store)
    await store.claim(run(), [started()])
    with pytest.raises(ValueError, match="exactly one terminal event"):
        await store.finish(run(), events)
    assert len((await store.load()).open_runs) == 1


async def test_no_second_terminal_event_gets_in_by_any_way(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    await store.finish(run(), [ended()])
    with pytest.raises(RunClosed):
        await store.append(sid(), [event(), ended(0, "turn_stopped")])
    assert (await store.load()).heads[sid()].seq == 2


async def test_a_copy_of_a_chat_may_hold_the_same_terminal_events(store: Store):
    await create(store, 0)
    await create(store, 1)
    await store.claim(run(), [started()])
    await store.finish(run(), [ended()])
    assert seqs(await store.append(sid(1), [started(), ended()])) == [1, 2]


async def test_an_unknown_run_cannot_be_finished(store: Store):
    await create(store)
    with pytest.raises(RunClosed):
        await store.finish(run(), [ended()])


async def test_a_renewed_run_comes_back_with_its_new_facts(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    renewed = run(state=RunState.ACKNOWLEDGED, guard_pid=4, guard_start=5, meta={"job_id": "j"})
    await store.renew(renewed)
    assert (await store.load()).open_runs == (renewed,)


async def test_who_takes_over_fences_the_old_owner_off(store: Store):
    await create(store)
    old = run()
    await store.claim(old, [started()])
    new = evolve(old, owner="server-2", fence=2)
    await store.renew(new)
    with pytest.raises(RunClosed):
        await store.renew(old)
    with pytest.raises(RunClosed):
        await store.finish(old, [ended()])
    await store.finish(new, [ended()])


async def test_of_two_that_take_over_with_one_fence_the_first_wins(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    await store.renew(run(owner="server-2", fence=2))
    with pytest.raises(RunClosed):
        await store.renew(run(owner="server-3", fence=2))


async def test_a_run_is_read_back_page_by_page_with_its_own_events_only(store: Store):
    await create(store)
    await store.append(sid(), [event("before")])
    await store.claim(run(), [started()])
    mine = [event(str(number), run=rid()) for number in range(5)]
    await store.append(sid(), mine[:3])
    await store.append(sid(), [event("of nobody"), event("of another", run=rid(9))])
    await store.append(sid(), mine[3:])
    finished = run(state=RunState.HANDED_OVER)
    await store.finish(finished, [ended()])
    await store.append(sid(), [event("after", run=rid())])

    after, found = 0, []
    while True:
        what, page = await store.run_events(rid(), after=after, max_rows=2)
        assert what == finished
        if not page:
            break
        found += page
        after = page[-1].seq
    assert seqs(found) == [2, 3, 4, 5, 8, 9, 10]


async def test_an_open_run_is_read_back_up_to_where_it_is(store: Store):
    await create(store)
    await store.claim(run(), [started()])
    await store.append(sid(), [event("1", run=rid())])
    assert seqs((await store.run_events(rid()))[1]) == [1, 2]
    assert await store.run_events(rid(9)) == (None, [])
