"""Semantic pages: bounded events of whole landmarks, the ones that matter first."""

from hypothesis import given
from hypothesis import strategies as st
from outlines import Story
from test_landmarks import STEPS, story_of

from agentsdock.timeline.semantic import EVENTS, JOB_EVENTS, select, window
from agentsdock.timeline.subagents import Subagents


def page(story, **options):
    outline = story.outline()
    found = window(outline, **{"limit": 10, "tail": True, **options})
    read = [(m, story.events[m.start_seq - 1 : m.end_seq]) for m in found.landmarks]
    return found, select(read)


def types(events):
    return [event["type"] for event in events]


def test_a_long_turn_shows_its_start_its_end_a_trace_and_its_latest_words():
    story = Story()
    story.turn("run_1", tools=20, texts=20)
    _, events = page(story)
    assert types(events) == ["turn_started", "tool_finished", "assistant_text", "turn_finished"]
    assert events[2]["text"] == "text 19"


def test_what_was_delivered_is_shown_beyond_the_budget():
    story = Story()
    story.tell("turn_started", run_id="run_1", prompt="p")
    for number in range(6):
        story.tell("artifact_created", run_id="run_1", artifact={"filename": str(number)})
    story.tell("code_diff", run_id="run_1")
    story.tell("turn_finished", run_id="run_1", result_text="r")
    _, events = page(story)
    assert types(events).count("artifact_created") == 6
    assert "code_diff" in types(events)


def test_a_job_is_shown_by_one_summary_row_and_a_few_events():
    story = Story()
    for number in range(5):
        story.turn(f"run_{number}", job_id="job_1", job_title="Nightly")
    found, events = page(story)
    assert len(found.landmarks) == 1
    assert types(events).count("job_summary") == 1
    assert len(events) <= JOB_EVENTS + 1


def test_events_of_others_inside_a_span_are_left_out():
    story = Story()
    story.tell("turn_started", run_id="run_1", prompt="p")
    story.tell("file_uploaded", file={"filename": "a"})
    story.tell("turn_queued", queued_id="q")
    story.tell("turn_finished", run_id="run_1", result_text="r")
    _, events = page(story, limit=10)
    assert types(events) == ["turn_started", "file_uploaded", "turn_finished"]
    _, events = page(story, limit=1, tail=False)
    assert types(events) == ["turn_started", "turn_finished"]


def test_pages_lead_back_to_the_beginning():
    story = Story()
    for number in range(7):
        story.turn(f"run_{number}")
    seen, before = [], None
    while True:
        found, _ = page(story, limit=3, before=before)
        seen = [mark.key for mark in found.landmarks] + seen
        before = found.next_before
        if before is None:
            break
    assert seen == [f"turn:run_{number}" for number in range(7)]


@given(STEPS, st.integers(1, 5), st.booleans())
def test_a_page_is_bounded_ordered_and_says_what_it_left_out(steps, limit, tail):
    story = story_of(steps)
    found, events = page(story, limit=limit, tail=tail)
    assert len(found.landmarks) + found.omitted_before + found.omitted_after == found.total
    assert len(found.landmarks) == min(limit, found.total)
    assert [e["seq"] for e in events] == sorted(e["seq"] for e in events)
    assert len({event["id"] for event in events}) == len(events)
    jobs = sum(mark.job is not None for mark in found.landmarks)
    assert len(events) <= EVENTS * len(found.landmarks) + jobs * (JOB_EVENTS - EVENTS + 1)


def test_helpers_are_told_by_their_latest_state_latest_first():
    story = Story()
    for helper, status in (("a", "running"), ("b", "running"), ("a", "completed")):
        story.tell("subagent_state", subagent_id=helper, subagent_status=status)
    helpers = Subagents()
    helpers.add(story.events)
    found = helpers.newest(1)
    assert [event["subagent_id"] for event in found["subagents"]] == ["a"]
    assert (found["count"], found["active_count"]) == (2, 1)
