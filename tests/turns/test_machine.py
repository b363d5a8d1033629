"""How a run ends: each ending is told apart, and the terminal event says all of it."""

import pytest
from scripted import (
    HELLO,
    INIT,
    RUN,
    call,
    called,
    cut_off,
    end,
    failure,
    machine,
    play,
    report,
    success,
)

from agentsdock.model.codes import Code
from agentsdock.streams.neutral import (
    Drift,
    Fault,
    Notice,
    QueryAnswered,
    QueryOpened,
    Result,
    Resumed,
    Text,
    Thought,
    Unusable,
    Usage,
)
from agentsdock.turns.clocks import IdleWarning, Limit
from agentsdock.turns.machine import StopReason, TurnEnd


def types(drafts):
    return [draft.type for draft in drafts]


def terminal(drafts):
    assert types(drafts)[-1] == "turn_finished"
    return drafts[-1].payload


def assert_failed(drafts, code, exit_code):
    last = terminal(drafts)
    error = drafts[-2]
    assert error.type == "error"
    assert (last["code"], last["is_error"], last["stopped"]) == (code, True, False)
    assert last["result_text"] == ""
    assert last["exit_code"] == error.payload["exit_code"] == exit_code
    assert last["message"] == error.payload["message"] != ""
    assert error.payload["code"] == code
    return error.payload


class TestSuccess:
    def test_a_result_and_exit_0_are_a_success_with_its_text(self):
        turn, _ = play(INIT, HELLO, success("42"))
        assert turn.awaiting_exit
        assert not turn.decided
        drafts = end(turn)
        last = terminal(drafts)
        assert types(drafts) == ["turn_finished"]
        assert (last["code"], last["is_error"], last["stopped"]) == (None, False, False)
        assert (last["result_text"], last["exit_code"]) == ("42", 0)
        assert "exit_overrun" not in last
        assert turn.succeeded

    def test_nothing_is_a_success_before_the_end(self):
        turn, _ = play(INIT, success())
        assert turn.verdict is None
        assert not turn.succeeded

    def test_no_exit_in_time_is_a_success_that_overran(self):
        turn, _ = play(INIT, success("42"))
        turn.limit(Limit.EXIT, 30)
        last = terminal(cut_off(turn))
        assert last["exit_overrun"] is True
        assert (last["code"], last["result_text"], last["exit_code"]) == (None, "42", None)
        assert turn.succeeded

    @pytest.mark.parametrize("how", ["stop", "shutdown", "memory"])
    def test_who_ends_a_process_that_has_its_result_leaves_it_a_success(self, how):
        turn, _ = play(INIT, success("42"))
        if how == "stop":
            turn.stop(StopReason.USER)
        elif how == "shutdown":
            turn.shutdown()
        else:
            turn.fail(Code.MEMORY_LIMIT, "too much")
        last = terminal(cut_off(turn))
        assert (last["code"], last["stopped"], last["exit_overrun"]) == (None, False, True)
        assert len(last["also"]) == 1

    def test_a_process_that_still_left_by_itself_did_not_overrun(self):
        turn, _ = play(INIT, success())
        turn.stop(StopReason.USER)
        drafts = turn.finish(TurnEnd(report=report(0, killed=False)))
        last = terminal(drafts)
        assert "exit_overrun" not in last
        assert last["exit_code"] == 0

    @pytest.mark.parametrize("code", [Code.STORAGE_FULL, Code.INTERNAL_ERROR])
    def test_a_result_whose_timeline_was_lost_is_none(self, code):
        turn, _ = play(INIT, success())
        turn.fail(code, "no space left")
        assert_failed(cut_off(turn), code, None)

    def test_the_exit_counts_only_when_all_of_the_stream_was_seen(self):
        turn = machine(INIT, success())
        turn.exited(0, killed=False)
        assert not turn.decided
        turn.feed(b"..")
        turn.stdout_ended()
        assert turn.decided
        assert turn.verdict.code is None

    def test_a_result_in_a_last_line_without_end_counts(self):
        turn, _ = play(INIT, at_end=[success("late")])
        assert terminal(end(turn))["result_text"] == "late"

    def test_a_guard_that_died_after_the_result_leaves_a_success_without_exit(self):
        turn, _ = play(INIT, success())
        turn.stdout_ended()
        turn.exited(None, killed=False)
        last = terminal(turn.finish(TurnEnd(report=report(None, guard_lost=True))))
        assert (last["code"], last["exit_overrun"], last["guard_lost"]) == (None, True, True)


class TestFailure:
    @pytest.mark.parametrize(
        "events, exit_code, code, shown",
        [
            ([INIT, success()], 3, Code.NONZERO_EXIT, 3),
            ([INIT, success()], -9, Code.NONZERO_EXIT, -9),
            ([INIT, HELLO], 1, Code.NONZERO_EXIT, 1),
            ([INIT, HELLO], -11, Code.NONZERO_EXIT, -11),
            ([], 1, Code.NONZERO_EXIT, 1),
            ([INIT, HELLO], 0, Code.MISSING_RESULT, 0),
            ([], 0, Code.MISSING_INIT, 0),
            ([INIT, failure()], 0, Code.LOGICAL_ERROR, 0),
            ([INIT, failure()], 1, Code.LOGICAL_ERROR, 1),
            ([failure()], 1, Code.LOGICAL_ERROR, 1),
            ([INIT, QueryOpened("q", "shell")], 0, Code.APPROVAL_REQUIRED, 0),
            ([INIT, QueryOpened("q", "shell")], 1, Code.APPROVAL_REQUIRED, 1),
            ([INIT, QueryOpened("q", "shell"), QueryAnswered("q")], 0, Code.MISSING_RESULT, 0),
        ],
    )
    def test_an_exit_decides_what_the_stream_left_open(self, events, exit_code, code, shown):
        turn, _ = play(*events)
        assert not turn.decided
        assert_failed(end(turn, exit_code), code, shown)
        assert not turn.succeeded

    @pytest.mark.parametrize(
        "code",
        [
            Code.BAD_LINE,
            Code.LINE_TOO_LONG,
            Code.OUTPUT_LIMIT,
            Code.TOOL_LIMIT,
            Code.UNKNOWN_SCHEMA,
            Code.SESSION_MISMATCH,
            Code.APPROVAL_REQUIRED,
            Code.MISSING_INIT,
        ],
    )
    def test_a_broken_stream_ends_the_process_at_once(self, code):
        turn, _ = play(INIT, Fault(code, "line 2 is odd"))
        assert turn.decided
        error = assert_failed(cut_off(turn), code, None)
        assert "line 2 is odd" in error["message"]

    @pytest.mark.parametrize(
        "limit, code, words",
        [
            (Limit.STARTUP, Code.STARTUP_TIMEOUT, "120 s"),
            (Limit.IDLE, Code.IDLE_TIMEOUT, "no output"),
            (Limit.TURN, Code.TURN_TIMEOUT, "absolute"),
            (Limit.APPROVAL, Code.APPROVAL_REQUIRED, "webFetch"),
        ],
    )
    def test_each_limit_has_its_own_code(self, limit, code, words):
        turn, _ = play(INIT, QueryOpened("q", "webFetch"))
        turn.limit(limit, 120)
        assert words in assert_failed(cut_off(turn), code, None)["message"]

    @pytest.mark.parametrize(
        "code",
        [
            Code.SPAWN_FAILED,
            Code.RUNTIME_UNAVAILABLE,
            Code.PROMPT_TOO_LARGE,
            Code.STORAGE_FULL,
            Code.MEMORY_LIMIT,
            Code.INTERNAL_ERROR,
        ],
    )
    def test_what_failed_on_our_side_is_told_as_such(self, code):
        turn = machine()
        turn.fail(code, "such and such")
        drafts = turn.finish(TurnEnd())
        error = assert_failed(drafts, code, None)
        assert error["message"] == "such and such"
        assert terminal(drafts)["tree_empty"] is True

    def test_a_success_without_a_session_is_none(self):
        turn, _ = play(success())
        assert turn.decided
        assert_failed(cut_off(turn), Code.MISSING_INIT, None)

    def test_an_error_is_left_to_exit_by_itself_and_its_exit_is_told(self):
        turn, _ = play(INIT, failure("quota"))
        assert turn.awaiting_exit
        assert turn.verdict.code is Code.LOGICAL_ERROR
        assert assert_failed(end(turn, 1), Code.LOGICAL_ERROR, 1)["message"].endswith(
            "quota The account's usage limit is reached."
        )

    def test_an_error_that_does_not_exit_in_time_is_still_an_error(self):
        turn, _ = play(INIT, failure())
        turn.limit(Limit.EXIT)
        drafts = cut_off(turn)
        assert_failed(drafts, Code.LOGICAL_ERROR, None)
        assert "exit_overrun" not in terminal(drafts)

    def test_a_guard_that_died_without_a_result_is_an_internal_error(self):
        turn, _ = play(INIT)
        turn.stdout_ended()
        turn.exited(None, killed=False)
        error = assert_failed(turn.finish(TurnEnd(report=report(None))), Code.INTERNAL_ERROR, None)
        assert "guard" in error["message"]

    def test_a_process_that_somebody_ended_without_saying_why_is_an_internal_error(self):
        turn, _ = play(INIT)
        turn.stdout_ended()
        turn.exited(-15, killed=True)
        assert turn.decided
        error = assert_failed(cut_off(turn), Code.INTERNAL_ERROR, None)
        assert "ended without a verdict" in error["message"]

    def test_the_exit_that_comes_last_decides(self):
        turn, _ = play(INIT)
        turn.stdout_ended()
        assert not turn.decided
        turn.exited(1, killed=False)
        assert turn.verdict.code is Code.NONZERO_EXIT

    def test_a_turn_that_is_finished_without_a_verdict_owns_up(self):
        turn, _ = play(INIT)
        assert_failed(turn.finish(TurnEnd()), Code.INTERNAL_ERROR, None)

    def test_a_signal_has_its_name(self):
        turn, _ = play(INIT)
        drafts = end(turn, -9)
        assert terminal(drafts)["signal"] == "SIGKILL"
        assert "SIGKILL" in terminal(drafts)["message"]


class TestStop:
    @pytest.mark.parametrize("reason", list(StopReason))
    def test_a_stop_is_neither_success_nor_error(self, reason):
        turn, _ = play(INIT, HELLO)
        turn.stop(reason)
        drafts = cut_off(turn)
        last = terminal(drafts)
        assert types(drafts) == ["turn_finished"]
        assert (last["code"], last["stopped"], last["is_error"]) == ("stopped", True, False)
        assert (last["result_text"], last["exit_code"]) == ("", None)
        assert last["stop_reason"] == reason

    def test_a_run_that_gave_way_names_its_successor(self):
        turn, _ = play(INIT)
        turn.stop(StopReason.SUPERSEDED, superseded_by_queued_id="queued_1")
        assert terminal(cut_off(turn))["superseded_by_queued_id"] == "queued_1"

    def test_a_second_stop_changes_nothing(self):
        turn, _ = play(INIT)
        turn.stop(StopReason.USER)
        turn.stop(StopReason.SUPERSEDED, superseded_by_queued_id="queued_1")
        last = terminal(cut_off(turn))
        assert last["stop_reason"] == "user"
        assert "superseded_by_queued_id" not in last
        assert "also" not in last

    def test_a_shutdown_has_its_own_code(self):
        turn, _ = play(INIT)
        turn.shutdown()
        last = terminal(cut_off(turn))
        assert (last["code"], last["stopped"]) == ("server_shutdown", True)

    def test_a_stop_before_the_process_is_a_stop(self):
        turn = machine()
        turn.stop(StopReason.USER)
        last = terminal(turn.finish(TurnEnd()))
        assert (last["code"], last["exit_code"], last["tree_empty"]) == ("stopped", None, True)

    def test_a_process_that_left_in_the_instant_of_the_stop_was_stopped(self):
        turn, _ = play(INIT)
        turn.stop(StopReason.USER)
        last = terminal(turn.finish(TurnEnd(report=report(0, killed=False))))
        assert (last["code"], last["exit_code"]) == ("stopped", None)


class TestFirstVerdictWins:
    def test_later_endings_are_noted_and_change_nothing(self):
        turn, _ = play(INIT, Fault(Code.BAD_LINE, "prose"))
        turn.stop(StopReason.USER)
        turn.limit(Limit.IDLE)
        turn.shutdown()
        turn.stop(StopReason.USER)
        drafts = cut_off(turn)
        assert_failed(drafts, Code.BAD_LINE, None)
        last = terminal(drafts)
        assert last["also"] == ["stopped", "idle_timeout", "server_shutdown"]
        assert "idle_timeout" in last["detail"]

    def test_an_error_result_stands_whatever_follows(self):
        turn, _ = play(INIT, failure(), Resumed(), success("fine now"))
        assert_failed(end(turn, 3), Code.LOGICAL_ERROR, 3)

    def test_lines_after_the_result_change_nothing(self):
        turn, drafts = play(
            INIT,
            call(),
            success("42"),
            called(),
            HELLO,
            Fault(Code.BAD_LINE, "prose"),
            failure(),
        )
        assert types(drafts) == ["provider_session", "tool_started"]
        last = terminal(end(turn))
        assert (last["code"], last["result_text"]) == (None, "42")
        assert last["tools"]["unfinished"] == 1

    def test_bytes_after_the_verdict_are_dropped(self):
        turn = machine(INIT, HELLO)
        turn.stop(StopReason.USER)
        assert turn.feed(b"..") == []
        assert turn.session_id is None

    def test_an_exit_limit_that_no_result_waits_for_means_nothing(self):
        turn, _ = play(INIT, success(), Resumed())
        turn.limit(Limit.EXIT)
        assert not turn.decided

    def test_there_is_one_terminal_event(self):
        turn, _ = play(INIT, success())
        end(turn)
        with pytest.raises(RuntimeError):
            turn.finish(TurnEnd())
        assert turn.feed(b".") == []


class TestSeveralResults:
    """A CLI that begins again by itself after its result."""

    def test_the_last_result_is_the_answer(self):
        turn, drafts = play(INIT, success("one"), Resumed(), HELLO, success("two"))
        assert "assistant_text" in types(drafts)
        assert terminal(end(turn))["result_text"] == "two"

    def test_any_error_among_them_fails_the_run(self):
        turn, _ = play(INIT, success("one"), Resumed(), failure("broke"))
        assert_failed(end(turn, 0), Code.LOGICAL_ERROR, 0)

    def test_a_stop_while_it_works_again_is_a_stop(self):
        turn, _ = play(INIT, success("one"), Resumed())
        assert not turn.awaiting_exit
        turn.stop(StopReason.USER)
        assert terminal(cut_off(turn))["code"] == "stopped"

    def test_exit_0_without_a_second_result_keeps_the_first(self):
        turn, _ = play(INIT, success("one"), Resumed())
        assert terminal(end(turn))["result_text"] == "one"

    def test_a_call_that_outlived_the_first_result_can_still_finish(self):
        turn, _ = play(INIT, call(), success("one"), Resumed(), called(), success("two"))
        assert terminal(end(turn))["tools"]["ok"] == 1

    def test_tokens_add_up_and_the_cost_is_a_running_total(self):
        first = Usage(input_tokens=200, output_tokens=40, cost_usd=0.5)
        second = Usage(input_tokens=100, cache_read_tokens=7, cost_usd=0.75)
        turn, _ = play(INIT, success(usage=first), Resumed(), success(usage=second))
        last = terminal(end(turn))
        assert (last["input_tokens"], last["output_tokens"]) == (300, 40)
        assert (last["cached_input_tokens"], last["total_tokens"]) == (7, 347)
        assert last["cost_usd"] == 0.75


class TestLastEvents:
    def test_open_calls_end_before_the_error_and_that_before_the_terminal(self):
        turn, _ = play(INIT, call("a"), call("b"))
        drafts = end(turn, 1)
        assert types(drafts) == ["tool_finished", "tool_finished", "error", "turn_finished"]
        assert [draft.payload["tool_id"] for draft in drafts[:2]] == ["a", "b"]
        assert drafts[0].payload["outcome"] == "unfinished"
        assert drafts[0].payload["exit_code"] is None
        assert drafts[0].payload["is_error"] is False
        assert drafts[0].payload["tool"]["name"] == "shell"

    def test_the_terminal_event_counts_the_calls_by_outcome(self):
        turn, _ = play(
            INIT,
            call("a"),
            called("a"),
            called("b", "failed", exit_code=2),
            called("c", "rejected"),
            call("d"),
            success(),
        )
        assert terminal(end(turn))["tools"] == {
            "total": 4,
            "ok": 1,
            "failed": 1,
            "rejected": 1,
            "unfinished": 1,
        }

    def test_what_comes_after_the_result_is_not_shown_at_the_end_either(self):
        turn, _ = play(INIT, success("42"), at_end=[HELLO])
        turn.stop(StopReason.USER)
        assert types(cut_off(turn)) == ["turn_finished"]

    def test_the_session_is_named_where_there_is_one(self):
        assert terminal(end(play(INIT)[0]))["provider_session_id"] == "chat-1"
        assert "provider_session_id" not in terminal(end(machine()))

    def test_what_was_being_said_when_the_verdict_fell_is_shown(self):
        turn, _ = play(INIT, at_end=[Thought("hm", 2), Text("I was abo", 9), success("no")])
        drafts = turn.limit(Limit.IDLE) + cut_off(turn)
        assert types(drafts) == ["reasoning_summary", "assistant_text", "error", "turn_finished"]
        assert terminal(drafts)["code"] == "idle_timeout"

    def test_every_event_carries_the_run_and_its_metadata(self):
        turn = machine(INIT, call(), meta={"purpose": "scheduled_job", "job_id": "j"})
        drafts = turn.spawned(("agent", "-p"), "/w") + turn.feed(b"..") + end(turn, 1)
        for draft in drafts:
            assert draft.run_id == RUN
            assert draft.payload["purpose"] == "scheduled_job"

    def test_metadata_never_replaces_a_field_of_the_event(self):
        turn, _ = play(INIT, meta={"code": "x", "backend": "y"})
        assert terminal(end(turn, 1))["code"] == "nonzero_exit"
        assert turn.turn.meta["code"] == "x"

    def test_the_guard_s_proof_is_on_the_terminal_event(self):
        turn, _ = play(INIT)
        turn.shutdown()
        last = terminal(
            turn.finish(TurnEnd(report=report(-15, killed=True, processes_ended=3, survivors=(7,))))
        )
        assert last["tree_empty"] is False
        assert last["survivors"] == [7]
        assert (last["processes_ended"], last["rung"]) == (3, "subreaper")
        assert (last["cpu_seconds"], last["max_rss_bytes"]) == (0.25, 1024)

    def test_a_process_without_a_report_is_not_proven_gone(self):
        turn = machine()
        turn.spawned(("agent",), "/w")
        turn.fail(Code.INTERNAL_ERROR, "bug")
        assert terminal(turn.finish(TurnEnd()))["tree_empty"] is False

    def test_an_open_question_is_named_by_any_other_ending(self):
        turn, _ = play(INIT, QueryOpened("q", "webFetch"), success())
        last = terminal(end(turn))
        assert last["open_queries"] == ["webFetch"]
        assert "webFetch" in last["detail"]

    def test_usage_is_told_under_the_names_of_the_wire(self):
        usage = Usage(5, 2, 10, 3)
        turn, _ = play(INIT, success(usage=usage))
        last = terminal(end(turn))
        assert (last["input_tokens"], last["output_tokens"]) == (5, 2)
        assert (last["cached_input_tokens"], last["cache_write_input_tokens"]) == (10, 3)
        assert last["total_tokens"] == 20
        assert "cost_usd" not in last

    def test_a_long_answer_is_cut_and_says_so(self):
        turn, _ = play(INIT, success("x" * 300_000))
        text = terminal(end(turn))["result_text"]
        assert len(text) == 262_144
        assert "trimmed" in text[-80:]


class TestStderr:
    def test_the_cli_s_own_last_words_come_first(self):
        turn, _ = play(INIT)
        error = assert_failed(
            end(turn, 1, stderr_tail="Retry attempt 2...\nError: no such host\n", stderr_bytes=40),
            Code.NONZERO_EXIT,
            1,
        )
        assert error["message"].startswith("Error: no such host (Cursor exited with status 1")
        assert (error["stderr_tail"], error["stderr_bytes"]) == (
            "Retry attempt 2...\nError: no such host\n",
            40,
        )

    def test_a_needed_sign_in_is_told(self):
        turn = machine()
        error = assert_failed(
            end(turn, 1, stderr_tail="Error: Authentication required."), Code.NONZERO_EXIT, 1
        )
        assert error["diagnosis"] == "sign_in"
        assert "Sign-in needed" in error["message"]

    def test_a_prompt_on_stdout_is_told_for_what_it_asks(self):
        line = Unusable(28, prose="Workspace Trust Required")
        turn, _ = play(Fault(Code.APPROVAL_REQUIRED, "a prompt", line))
        assert assert_failed(cut_off(turn), Code.APPROVAL_REQUIRED, None)["diagnosis"] == "trust"

    def test_prompt_and_stderr_stay_out_of_representations(self):
        turn = machine(scrub=("sentinel",))
        assert "sentinel" not in repr(turn.turn)
        assert "sentinel" not in repr(TurnEnd(stderr_tail="sentinel"))

    def test_a_sign_in_that_expired_in_mid_turn_is_told_from_the_result(self):
        turn, _ = play(INIT, failure("401 Unauthorized"))
        error = assert_failed(end(turn, 0), Code.LOGICAL_ERROR, 0)
        assert error["diagnosis"] == "sign_in"

    def test_the_prompt_and_secrets_are_never_shown(self):
        prompt = "Please look at the orchard planner and find out why it prunes in May."
        turn = machine(INIT, scrub=(prompt, "sk-1234567890abcdef"))
        turn.feed(b".")
        drafts = end(turn, 1, stderr_tail=f"bad key sk-1234567890abcdef for: {prompt}\n")
        shown = str([draft.payload for draft in drafts])
        assert "orchard planner" not in shown
        assert "sk-123" not in shown
        assert "[redacted]" in shown

    def test_a_success_shows_no_stderr(self):
        turn, _ = play(INIT, success())
        assert "noise" not in str(terminal(end(turn, 0, stderr_tail="noise")))


class TestTimeline:
    def test_the_session_is_told_right_after_init_and_once(self):
        turn, drafts = play(INIT, INIT, HELLO)
        assert types(drafts) == ["provider_session", "assistant_text"]
        assert drafts[0].payload["provider_session_id"] == "chat-1" == turn.session_id

    def test_a_started_process_is_told_without_control_sequences(self):
        draft = machine().spawned(("agent", "\x1b[31m-p", "\udcff"), "/w")[0]
        assert draft.type == "process_started"
        assert draft.payload["argv"] == ["agent", "-p", "?"]
        assert draft.payload["cwd"] == "/w"

    def test_signs_of_life_and_questions_make_no_event(self):
        _, drafts = play(INIT, Notice("retry/starting"), QueryOpened("q", "x"), QueryAnswered("q"))
        assert types(drafts) == ["provider_session"]

    def test_new_things_are_counted(self):
        turn, _ = play(INIT, Drift("field", "a"), Drift("field", "a"), Drift("tool", "draw"))
        assert turn.drift == {("field", "a"): 2, ("tool", "draw"): 1}

    def test_a_warning_says_which_clock_and_how_long(self):
        warning = IdleWarning(Limit.IDLE, 900, 600, 300, "ToolStarted shell")
        draft = machine().warn_idle(warning)[0]
        assert draft.type == "idle_warning"
        assert draft.payload == {
            "run_id": RUN,
            "idle_seconds": 300,
            "clock": "idle",
            "budget_seconds": 900,
            "left_seconds": 600,
            "last_sign": "ToolStarted shell",
        }

    def test_the_clocks_learn_what_they_need(self):
        turn, _ = play(INIT, call("a", timeout=30), QueryOpened("q", "x"))
        progress = turn.progress
        assert (progress.lines, progress.initialised, progress.resting) == (3, True, False)
        assert progress.calls == {"a": 30}
        assert progress.queries == {"q"}
        assert play(INIT, call("a", timeout=30), called("a"))[0].progress.calls == {}
        assert progress.last_sign == "QueryOpened"
        turn, _ = play(INIT, Result(is_error=False))
        assert turn.progress.resting
        assert turn.progress.results == 1

    def test_a_line_that_means_nothing_is_a_sign_too(self):
        turn = machine(INIT)
        assert turn.progress.last_sign == "start"
        turn.feed(b".")
        assert turn.progress.last_sign == "Init"
        turn.feed(b"")
        assert turn.progress.last_sign == "Init"
        turn.feed(b".")
        assert turn.progress.last_sign == "line"

    def test_counters_are_bounded(self):
        asked = [QueryOpened(str(number), "x") for number in range(200)]
        new = [Drift("field", str(number)) for number in range(500)]
        turn, _ = play(INIT, *asked, *new, new[0], new[-1])
        assert len(turn.open_queries) == 64
        assert len(turn.drift) == 200
        assert turn.drift["field", "0"] == 2
