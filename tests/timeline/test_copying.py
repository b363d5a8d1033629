"""The copy of a timeline: what a person saw, and nothing that leads back to the parent."""

from hypothesis import given
from hypothesis import strategies as st
from outlines import Story

from agentsdock.timeline.copying import COPIED_TYPES, TimelineCopy


def copied(story, files=None):
    timeline = TimelineCopy()
    drafts = []
    for event in story.events:
        if timeline.wants(event):
            drafts += timeline.copy(event, files or {})
    return [*drafts, *timeline.end()], timeline.copied


def kinds(drafts):
    return [draft.type for draft in drafts]


def test_a_turn_is_copied_with_its_times_and_says_where_it_came_from():
    story = Story()
    story.turn("run_1", "do it", tools=1)
    drafts, count = copied(story)
    assert kinds(drafts) == [
        "turn_started",
        "tool_started",
        "tool_finished",
        "assistant_text",
        "turn_finished",
    ]
    assert count == 5
    first = drafts[0].payload
    assert first["ts"] == first["original_ts"] == story.events[0]["ts"]
    assert (first["forked"], first["original_seq"]) == (True, 1)
    assert first["original_session_id"] == "sess_1"
    assert not {"seq", "id", "session_id"} & first.keys()


def test_a_final_text_is_blank_where_the_turn_has_said_it_already():
    story = Story()
    story.turn("run_1", texts=1, result="same")
    story.turn("run_2", texts=0, result="only here")
    ends = [d.payload["result_text"] for d in copied(story)[0] if d.type == "turn_finished"]
    assert ends == ["", "only here"]


def test_a_run_that_is_still_open_gets_an_end_of_its_own():
    story = Story()
    story.turn("run_1", end=False)
    story.turn("run_2")
    story.turn("run_3", end=False)
    drafts, count = copied(story)
    stops = [d.payload for d in drafts if d.type == "turn_stopped"]
    assert [stop["run_id"] for stop in stops] == ["run_1", "run_3"]
    assert all(stop["synthetic"] and stop["reason"] == "fork_snapshot" for stop in stops)
    assert kinds(drafts).index("turn_stopped") < kinds(drafts).index("turn_finished")
    assert count == len(drafts) - 2


def test_imported_turns_need_no_end():
    story = Story()
    story.tell("turn_started", run_id="import_1", prompt="p", imported=True)
    story.tell("assistant_text", run_id="import_1", text="t", imported=True)
    assert kinds(copied(story)[0]) == ["turn_started", "assistant_text"]


def test_history_that_was_imported_while_a_turn_ran_leaves_it_its_one_end():
    story = Story()
    story.tell("turn_started", run_id="run_1", prompt="p", backend="claude")
    story.tell("turn_started", run_id="import_1", prompt="old", imported=True)
    story.tell("assistant_text", run_id="import_1", text="old", imported=True)
    story.tell("turn_finished", run_id="run_1", backend="claude", result_text="only here")
    drafts, _ = copied(story)
    ends = [draft for draft in drafts if draft.type in ("turn_finished", "turn_stopped")]
    assert [(end.type, end.payload["result_text"]) for end in ends] == [
        ("turn_finished", "only here")
    ]


def test_runs_between_chats_are_not_copied_with_anything_of_theirs():
    story = Story()
    story.turn("run_1", purpose="cross_chat_handoff_delivery")
    story.turn("run_2")
    drafts, _ = copied(story)
    assert {draft.payload["run_id"] for draft in drafts} == {"run_2"}


def test_files_are_those_of_the_fork_and_a_lost_one_is_told():
    story = Story()
    story.tell("file_uploaded", file={"id": "file_1", "filename": "a"})
    story.tell("artifact_created", run_id="run_1", artifact={"id": "art_1", "filename": "b"})
    story.tell("turn_started", run_id="run_1", prompt="p", file_ids=["file_1", "art_1"])
    drafts, _ = copied(story, {"file_1": {"id": "file_9"}, "art_1": None})
    uploaded, lost, started = (draft.payload for draft in drafts[:3])
    assert uploaded["file"] == {"id": "file_9"}
    assert kinds(drafts)[1] == "artifact_error"
    assert (lost["source_file_id"], lost["filename"]) == ("art_1", "b")
    assert "artifact" not in lost
    assert started["file_ids"] == ["file_9"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["turn", "open", "import", "queue", "private"]), st.integers(0, 2)),
    max_size=10,
)


@given(STEPS)
def test_each_copied_run_has_one_start_and_one_end_in_that_order(steps):
    story = Story()
    for number, (step, size) in enumerate(steps):
        run = f"run_{number}"
        match step:
            case "turn":
                story.turn(run, tools=size, texts=size)
            case "open":
                story.turn(run, end=False, texts=size)
            case "import":
                story.tell("turn_started", run_id="import_1", prompt="p", imported=True)
            case "queue":
                story.tell("turn_queued", queued_id="q")
            case "private":
                story.turn(run, purpose="handoff_digest")
    drafts, count = copied(story)
    assert set(kinds(drafts)) <= COPIED_TYPES
    assert count == sum(not draft.payload.get("synthetic") for draft in drafts)
    for number, (step, _) in enumerate(steps):
        own = [d.type for d in drafts if d.payload.get("run_id") == f"run_{number}"]
        if step in ("turn", "open"):
            assert own[0] == "turn_started"
            assert own.count("turn_started") == 1
            assert [k for k in own if k in ("turn_finished", "turn_stopped")] == own[-1:]
        else:
            assert own == []
