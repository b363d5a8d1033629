"""Search finds what a plain look through everything would find, indexed or not."""

import apsw
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from store_samples import chat, create, event, sid

from agentsdock.store import ledger, schema, search
from agentsdock.store.engine import transaction
from agentsdock.store.protocol import DropSession, PutSession, SessionGone, Store
from agentsdock.store.sqlite import open_store

TEXTS = (
    "POL-358 fixed",
    "file src/app.py line 3",
    "user@example.org wrote",
    "C++ and C#",
    "foo OR bar",
    "don't use agents",
    "snake_case_name",
)


def database(*chats):
    """Chats of these texts, each text an event of its own, nothing indexed."""
    db = apsw.Connection(":memory:")
    schema.migrate(db)
    for number, texts in enumerate(chats):
        events = [event(text) for text in texts]
        unit = ledger.Unit(sid(number), tuple(events), (PutSession(chat(number)),))
        [done] = ledger.commit(db, [unit], 0)
        assert isinstance(done, ledger.Done)
    return db


def index(db, steps=1_000_000):
    with transaction(db):
        while steps and search.index_some(db):
            steps -= 1


def found(db, query, number=0, limit=100):
    return [hit.event.seq for hit in search.search_chat(db, sid(number), query, limit).hits]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("POL-358", {1}),
        ("src/app.py", {2}),
        ("@example", {3}),
        ("don't", {6}),
        ("foo OR", {5}),
        ("AND", {4}),
        ('"and c"', {4}),
        ('"an"', set()),
        ("pol fix", {1}),
        ("-foo", {5}),
        ("NEAR(", set()),
        ("x:y", set()),
        ('"open phrase', set()),
        ('"snake case"', {7}),
        ("SNAKE_case", {7}),
        ("**", set()),
        ("::", set()),
        ('""', set()),
        ("a\0", {2, 4, 6}),
        ("text:foo", set()),
        ("bar*", {5}),
    ],
)
def test_a_query_is_words_and_no_language(query, expected, indexed):
    db = database(TEXTS)
    if indexed:
        index(db)
    assert set(found(db, query)) == expected


def test_words_with_signs_find_at_least_their_own_text():
    db = database(TEXTS)
    assert 4 in found(db, "C++")
    assert 4 in found(db, "C#")


@pytest.mark.parametrize("indexed", [False, True])
def test_accents_and_case_do_not_matter_and_no_character_is_too_rare(indexed):
    db = database(["Résumé", "語 と 言葉", "😀 smile", "half \ufffd emoji"])
    if indexed:
        index(db)
    assert found(db, "resume") == [1]
    assert found(db, "言葉") == [2]
    assert found(db, "smil") == [3]
    assert found(db, "emoji") == [4]


WORDS = ("apple", "apply", "tree", "trees", "cut", "Äpfel", "a-b")
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)


def plain(texts, words):
    def tokens(text):
        return text.replace("-", " ").replace("Ä", "a").casefold().split()

    def holds(text, word):
        if word == "a-b":
            pairs = zip(tokens(text), tokens(text)[1:], strict=False)
            return any(a == "a" and b.startswith("b") for a, b in pairs)
        return any(token.startswith(tokens(word)[0]) for token in tokens(text))

    return {n for n, text in enumerate(texts, 1) if all(holds(text, word) for word in words)}


@given(
    st.lists(SENTENCES, max_size=8),
    st.lists(SENTENCES, max_size=8),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_each_watermark_gives_the_hits_of_a_plain_scan(first, second, words, steps):
    db = database(first, second)
    rows = search.STEP_ROWS
    search.STEP_ROWS = 3
    try:
        index(db, steps)
    finally:
        search.STEP_ROWS = rows
    query = " ".join(words)
    assert set(found(db, query)) == plain(first, words)
    assert set(found(db, query, 1)) == plain(second, words)
    hits = search.search_all(db, query, frozenset({sid(0), sid(1)}), 100).hits
    best = {hit.session_id: (hit.event.seq, hit.count) for hit in hits}
    expected = {sid(n): plain(texts, words) for n, texts in enumerate((first, second))}
    assert best == {key: (max(seqs), len(seqs)) for key, seqs in expected.items() if seqs}


def test_the_newest_hits_come_first_whether_indexed_or_not():
    db = database([f"same {number}" for number in range(9)])
    rows = search.STEP_ROWS
    search.STEP_ROWS = 4
    try:
        index(db, 1)
    finally:
        search.STEP_ROWS = rows
    assert found(db, "same") == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert found(db, "same", limit=7) == [9, 8, 7, 6, 5, 4, 3]


def test_too_much_that_is_not_indexed_is_said():
    db = database(["word"] * 5)
    size = search.FRESH_BYTES
    search.FRESH_BYTES = 3 * (len(event("word").body) + search.ROW_BYTES)
    try:
        answer = search.search_chat(db, sid(), "word", 10)
    finally:
        search.FRESH_BYTES = size
    assert ([hit.event.seq for hit in answer.hits], answer.complete) == ([5, 4, 3], False)
    assert search.search_chat(db, sid(), "word", 10).complete


async def settle(store, folder):
    """Until nothing is left to be indexed, as another connection sees it."""
    db = apsw.Connection(str(folder / "agentsdock.db"), flags=apsw.SQLITE_OPEN_READONLY)
    behind = (
        "SELECT count(*) FROM heads LEFT JOIN search_marks USING (chat)"
        " WHERE ifnull(search_marks.seq, 0) < heads.seq"
    )
    with trio.fail_after(20):
        while db.execute(behind).fetchone()[0]:
            await trio.sleep(0.01)
    return db


async def test_a_deleted_chat_is_found_no_more_and_leaves_the_index(store: Store, folder):
    await create(store)
    await create(store, 1)
    await store.append(sid(), [event("needle") for _ in range(5)])
    await store.append(sid(1), [event("needle")])
    db = await settle(store, folder)
    assert db.execute("SELECT count(*) FROM search_docsize").fetchone() == (6,)
    await store.append(sid(), (), [DropSession(sid())])
    hits = (await store.search_all("needle", frozenset({sid(), sid(1)}), 100)).hits
    assert [hit.session_id for hit in hits] == [sid(1)]
    with pytest.raises(SessionGone):
        await store.search_chat(sid(), "needle", 5)
    await settle(store, folder)
    with trio.fail_after(20):
        while db.execute("SELECT count(*) FROM search_docsize").fetchone() != (1,):
            await trio.sleep(0.01)


async def test_a_damaged_index_is_built_anew_while_the_store_goes_on(folder):
    async with open_store(folder) as store:
        await create(store)
        await store.append(sid(), [event("needle") for _ in range(50)])
        await settle(store, folder)
    db = apsw.Connection(str(folder / "agentsdock.db"))
    db.execute("UPDATE search_data SET block = x'ffffffffffff' WHERE id > 1")
    db.close()
    async with open_store(folder) as store:
        answer = await store.search_chat(sid(), "needle", 5)
        assert not answer.complete
        await store.append(sid(), [event("needle")])
        with trio.fail_after(20):
            while not (answer := await store.search_chat(sid(), "needle", 100)).complete:
                await trio.sleep(0.01)
        assert len(answer.hits) == 51
