"""The outline of a chat: one landmark a turn, a job, a file; in order, whatever the pieces."""

from hypothesis import given
from hypothesis import strategies as st
from outlines import Story, feed

from agentsdock.timeline.landmarks import PREVIEW_CHARS, TITLE_CHARS, Outline


def shown(outline):
    return [(mark.key, mark.kind, mark.start_seq, mark.end_seq) for mark in outline]


def test_a_turn_is_one_landmark_from_its_start_to_its_end():
    story = Story()
    story.tell("session_created")
    story.turn("run_1", "Tidy up\nplease", tools=2, result="All tidy")
    [created, turn] = story.outline()
    assert created.kind == "system"
    assert (turn.key, turn.kind, turn.start_seq, turn.end_seq) == ("turn:run_1", "user", 2, 9)
    assert turn.public() == {
        "key": "turn:run_1",
        "kind": "user",
        "start_seq": 2,
        "end_seq": 9,
        "title": "Tidy up",
        "preview": "All tidy",
        "meta": "2 tools",
        "timestamp": "2026-01-01T00:00:02Z",
    }
    assert not turn.open


def test_thoughts_and_tools_are_counted_towards_their_own_turn():
    story = Story()
    story.turn("run_1", tools=1)
    story.tell("turn_started", run_id="run_2", prompt="again")
    story.tell("reasoning_summary", run_id="run_2", text="hm")
    story.tell("reasoning_summary", run_id="run_2", text="hm")
    assert [mark.meta for mark in story.outline()] == ["1 tool", "2 thoughts"]


def test_a_turn_without_an_end_goes_on_to_where_the_chat_stands():
    story = Story()
    story.turn("run_1", end=False, texts=3)
    [turn] = story.outline()
    assert (turn.open, turn.end_seq) == (True, 5)


def test_imported_turns_that_share_a_run_are_told_apart_by_their_start():
    story = Story()
    for prompt in ("first", "second"):
        story.tell("turn_started", run_id="import_1", prompt=prompt, imported=True)
        story.tell("assistant_text", run_id="import_1", text="yes", imported=True)
    assert shown(story.outline()) == [
        ("turn:import_1", "user", 1, 2),
        ("turn:import_1:start-3", "user", 3, 4),
    ]


def test_a_job_is_one_landmark_that_stands_where_it_was_heard_of_last():
    story = Story()
    story.turn("run_1", job_id="job_1", job_title="Nightly", purpose="scheduled_job")
    story.turn("run_2", "by hand")
    story.turn("run_3", job_id="job_1", job_title="Nightly", purpose="scheduled_job")
    marks = list(story.outline())
    assert [mark.key for mark in marks] == ["turn:run_2", "job:job_1"]
    job = marks[1]
    assert (job.start_seq, job.anchor) == (1, len(story.events))
    summary = job.job.summary("job_1")
    assert summary["job_run_count"] == 2
    assert summary["job_latest_status"] == summary["job_status"] == "completed"
    assert summary["job_latest_run_id"] == "run_3"
    assert summary["seq"] == summary["job_end_seq"] == job.anchor


def test_the_note_that_a_run_began_does_not_undo_its_end():
    story = Story()
    story.turn("run_1", job_id="job_1")
    story.tell("job_ran", job_id="job_1", run_id="run_1", job={"id": "job_1"})
    [job] = story.outline()
    assert job.job.summary("job_1")["job_status"] == "completed"


def test_what_belongs_to_no_turn_stands_by_itself_and_the_queue_is_hidden():
    story = Story()
    story.tell("file_uploaded", file={"filename": "plan.pdf"})
    story.tell("turn_queued", queued_id="queued_1", prompt="later")
    story.tell("error", message="no")
    story.tell("backend_changed", old="claude", new="cursor")
    story.tell("turn_stopped", run_id="run_9", native_steer=True)
    marks = list(story.outline())
    assert [(mark.kind, mark.title) for mark in marks] == [
        ("media", "plan.pdf"),
        ("error", "no"),
        ("system", "Backend changed"),
    ]


def test_titles_and_previews_are_one_bounded_line():
    story = Story()
    story.turn("run_1", "x" * 500, result="word\n" * 500)
    [turn] = story.outline()
    assert len(turn.title) == TITLE_CHARS
    assert len(turn.preview) <= PREVIEW_CHARS
    assert "\n" not in turn.preview


STEPS = st.lists(
    st.sampled_from(["turn", "job", "file", "queue", "import", "open", "error"]), max_size=12
)


def story_of(steps):
    story = Story()
    for number, step in enumerate(steps):
        run = f"run_{number}"
        match step:
            case "turn":
                story.turn(run, tools=number % 3)
            case "job":
                story.turn(run, job_id=f"job_{number % 2}", job_title="Job")
            case "file":
                story.tell("file_uploaded", file={"filename": "a"})
            case "queue":
                story.tell("turn_queued", queued_id="q", prompt="p")
            case "import":
                story.tell("turn_started", run_id="import_1", prompt="p", imported=True)
                story.tell("assistant_text", run_id="import_1", text="t", imported=True)
            case "open":
                story.turn(run, end=False)
            case "error":
                story.tell("error", message="no")
    return story


@given(STEPS, st.integers(0, 60))
def test_the_outline_is_the_same_in_whatever_pieces_it_is_read(steps, cut):
    events = story_of(steps).events
    pieces = Outline()
    feed(pieces, events[:cut])
    feed(pieces, events[cut:])
    whole = story_of(steps).outline()
    assert [mark.public() for mark in pieces] == [mark.public() for mark in whole]


@given(STEPS)
def test_landmarks_follow_each_other_and_each_key_is_there_once(steps):
    marks = list(story_of(steps).outline())
    assert len({mark.key for mark in marks}) == len(marks)
    assert [mark.anchor for mark in marks] == sorted({mark.anchor for mark in marks})
    assert all(mark.start_seq <= mark.end_seq for mark in marks)
