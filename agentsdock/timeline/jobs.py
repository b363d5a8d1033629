"""What the events of one scheduled job add up to, for the one row that a page shows of it."""

from typing import Any

from attrs import define, field

Event = dict[str, Any]

_SHOWN = ("backend", "result_text", "text", "output", "message", "error", "exit_code", "is_error")


def job_status(event: Event) -> str | None:
    """``failed``, ``stopped``, ``deferred``, ``completed`` or ``running``; None says nothing."""
    kind = event["type"]
    if kind in ("error", "job_error") or event.get("is_error") or event.get("exit_code"):
        return "failed"
    if kind == "turn_stopped" or event.get("stopped"):
        return "stopped"
    if kind == "job_deferred":
        return "deferred"
    if kind == "turn_finished":
        return "completed"
    if kind in ("turn_started", "job_ran"):
        return "running"
    return None


@define(eq=False)
class JobHistory:
    """Counted up event by event, in the order of the chat."""

    first: Event | None = None
    last: Event | None = None
    events: int = 0
    runs: set[str] = field(factory=set)
    title: str | None = None
    job: Event | None = None
    latest_run: str | None = None
    status: str = "unknown"
    decided_by: Event | None = None
    ended: set[str] = field(factory=set)

    def add(self, event: Event) -> None:
        self.first = self.first or event
        self.last = event
        self.events += 1
        run_id = event.get("run_id")
        self.title = event.get("job_title") or self.title
        if isinstance(event.get("job"), dict):
            self.job = event["job"]
        if run_id:
            self.runs.add(run_id)
            self.latest_run = run_id
        status = job_status(event)
        # The note that a run was started may come after its end.
        if status is None or (status == "running" and run_id in self.ended):
            return
        if run_id and event["type"] in ("turn_finished", "turn_stopped"):
            self.ended.add(run_id)
        self.status, self.decided_by = status, event

    def summary(self, job_id: str) -> Event:
        """The ``job_summary`` row of a semantic page."""
        assert self.first is not None
        assert self.last is not None
        decided = self.decided_by or self.last
        shown = {name: decided[name] for name in (*_SHOWN, "stopped") if name in decided}
        status = {
            "status": self.status,
            "status_seq": decided["seq"],
            "status_type": decided["type"],
            "status_run_id": decided.get("run_id"),
        }
        return {
            "seq": self.last["seq"],
            "id": f"job_summary:{job_id}",
            "session_id": self.last["session_id"],
            "type": "job_summary",
            "ts": self.last["ts"],
            **shown,
            "purpose": "scheduled_job",
            "job_id": job_id,
            "job_title": self.title or job_id,
            "job_run_count": len(self.runs),
            "job_event_count": self.events,
            "job_start_seq": self.first["seq"],
            "job_end_seq": self.last["seq"],
            "job_history_truncated": False,
            "job_latest_run_id": self.latest_run,
            **{f"job_latest_{name}": value for name, value in status.items()},
            **{f"job_{name}": value for name, value in status.items()},
            "job": {**(self.job or {"id": job_id}), "run_count": len(self.runs)},
        }
