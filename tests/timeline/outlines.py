"""Chats made up from a few words, and the outline that they have."""

from agentsdock.model.events import INNER_TYPES, TRACE_TYPES
from agentsdock.timeline.landmarks import Outline


class Story:
    """Events of one chat, numbered as they are told."""

    def __init__(self):
        self.events = []

    def tell(self, type_, **payload):
        seq = len(self.events) + 1
        event = {
            "seq": seq,
            "id": f"evt_{seq}",
            "session_id": "sess_1",
            "type": type_,
            "ts": f"2026-01-01T00:00:{seq % 60:02}Z",
            **payload,
        }
        self.events.append(event)
        return event

    def turn(self, run, prompt="do it", *, tools=0, texts=1, result="done", end=True, **meta):
        self.tell("turn_started", run_id=run, prompt=prompt, **meta)
        self.tell("process_started", run_id=run)
        for number in range(tools):
            self.tell("tool_started", run_id=run, tool={"id": str(number)})
            self.tell("tool_finished", run_id=run, tool_id=str(number), output="")
        for number in range(texts):
            self.tell("assistant_text", run_id=run, text=f"text {number}")
        if end:
            self.tell("turn_finished", run_id=run, result_text=result, **meta)

    def outline(self, upto=None):
        """As the house builds it, in one piece."""
        outline = Outline()
        feed(outline, self.events[:upto])
        return outline


def feed(outline, events):
    outline.add(event for event in events if event["type"] not in INNER_TYPES)
    outline.add_trace((e["seq"], e["type"]) for e in events if e["type"] in TRACE_TYPES)
    if events:
        outline.reach(events[-1]["seq"])
