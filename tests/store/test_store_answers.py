"""Answers to idempotent requests: the first is kept, for as long as it was asked."""

import pytest
import trio
from store_samples import create, event, seqs, sid

from agentsdock.store.protocol import AnswerExists, DropSession, KeepAnswer
from agentsdock.store.sqlite import open_store


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def store(folder, clock):
    async with open_store(folder, clock=clock) as opened:
        await create(opened)
        yield opened


def answer(key="k", status=200, expires_at=1000.0, request="hash"):
    return KeepAnswer("POST /turns", key, request, status, b"body", expires_at)


async def kept(store):
    return await store._in_writer(
        lambda db: db.execute("SELECT count(*) FROM answers").fetchone()[0], abandon=False
    )


async def test_an_answer_is_kept_with_the_unit_that_it_tells_of(store):
    await store.append(sid(), [event()], [answer()])
    assert await store.answer("POST /turns", "k") == answer()
    assert await store.answer("POST /turns", "other") is None
    assert await store.answer("POST /jobs", "k") is None


async def test_another_request_under_the_same_key_does_nothing(store):
    await store.append(sid(), [event()], [answer(status=201)])
    with pytest.raises(AnswerExists):
        await store.append(sid(), [event()], [answer(status=202, request="another")])
    assert (await store.answer("POST /turns", "k")).status == 201
    assert seqs(await store.append(sid(), [event()])) == [2]


async def test_the_same_request_may_complete_its_answer(store):
    await store.append(sid(), (), [answer(status=201)])
    await store.append(sid(), (), [answer(status=202)])
    assert (await store.answer("POST /turns", "k")).status == 202


async def test_an_expired_answer_is_not_given_and_its_key_is_free(store, clock):
    await store.append(sid(), (), [answer(status=201)])
    clock.now = 1000.0
    assert await store.answer("POST /turns", "k") is None
    await store.append(sid(), (), [answer(status=202, expires_at=2000.0, request="another")])
    assert (await store.answer("POST /turns", "k")).status == 202


async def test_expired_answers_leave_the_file_in_a_quiet_moment(store, clock):
    await store.append(sid(), (), [answer(str(number)) for number in range(450)])
    await store.append(sid(), (), [answer("later", expires_at=3000.0)])
    assert await kept(store) == 451
    with trio.fail_after(5):
        while store._untidy:
            await trio.lowlevel.checkpoint()
    clock.now = 2000.0
    await store.append(sid(), [event()])
    with trio.fail_after(5):
        while await kept(store) > 1:
            await trio.lowlevel.checkpoint()
    assert await store.answer("POST /turns", "later") is not None


async def test_answers_survive_a_restart(folder, clock):
    async with open_store(folder, clock=clock) as store:
        await create(store)
        await store.append(sid(), (), [answer()])
    async with open_store(folder, clock=clock) as store:
        assert await store.answer("POST /turns", "k") == answer()


async def test_a_dropped_chat_s_answers_are_gone(store):
    await store.append(sid(), (), [answer()])
    await store.append(sid(), (), [DropSession(sid())])
    assert await store.answer("POST /turns", "k") is None
