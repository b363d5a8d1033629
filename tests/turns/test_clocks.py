"""Which limit ends a silent turn, when, and what is said beforehand."""

import pytest
from attrs import evolve

from agentsdock.model.limits import TurnLimits
from agentsdock.turns.clocks import MAX_WARNINGS, Clocks, IdleWarning, Limit, Progress

LIMITS = TurnLimits(
    startup_seconds=120,
    turn_seconds=10_000,
    idle_seconds=900,
    idle_warn_seconds=300,
    exit_seconds=30,
    approval_seconds=60,
)
BEGUN = Progress(lines=1, initialised=True)


def clocks(progress=BEGUN, now=0.0, **limits):
    made = Clocks(evolve(LIMITS, **limits), 0.0)
    if progress is not None:
        made.follow(progress, now)
    return made


def run_out(made, until=1e9):
    """Wake whenever asked to; what came due, and when."""
    seen = []
    while (now := made.next_wake()) <= until:
        due = made.check(now)
        if due is not None:
            seen.append((now, due))
        if isinstance(due, Limit):
            return seen
    return seen


def test_a_cli_that_never_initializes_runs_into_the_startup_limit():
    assert run_out(clocks(None))[-1] == (120, Limit.STARTUP)


def test_lines_without_an_init_do_not_delay_the_startup_limit():
    made = clocks(None)
    made.follow(Progress(lines=9), 119)
    assert made.check(119.9) is None
    assert made.check(120) is Limit.STARTUP


def test_silence_runs_into_the_idle_limit_after_one_warning():
    seen = run_out(clocks())
    assert [when for when, _ in seen] == [300, 900]
    assert seen[0][1] == IdleWarning(Limit.IDLE, 900, 600, 300, "start")
    assert seen[1][1] is Limit.IDLE


def test_every_line_starts_the_silence_anew():
    made = clocks()
    made.follow(evolve(BEGUN, lines=2), 899)
    assert made.check(900) is None
    assert run_out(made)[-1] == (1799, Limit.IDLE)


def test_a_cli_that_is_slow_to_start_is_warned_about_too():
    made = clocks(None, startup_seconds=400)
    when, warning = run_out(made)[0]
    assert (when, warning.clock, warning.left_seconds) == (300, Limit.STARTUP, 100)


def test_budgets_and_silence_are_counted_from_their_own_beginnings():
    made = Clocks(evolve(LIMITS, turn_seconds=400), 1000.0)
    made.follow(BEGUN, 1050.0)
    warning = made.check(1360.0)
    assert (warning.clock, warning.budget_seconds, warning.left_seconds) == (Limit.TURN, 400, 40)
    assert warning.idle_seconds == 310
    assert made.budget(Limit.IDLE) == 350
    assert [made.budget(limit) for limit in (Limit.STARTUP, Limit.APPROVAL, Limit.EXIT)] == [
        120,
        60,
        30,
    ]


def test_steady_output_does_not_delay_the_turn_limit():
    made = clocks()
    for second in range(100, 10_000, 100):
        made.follow(evolve(BEGUN, lines=second), second)
        assert made.check(second) is None
    assert made.check(10_000) is Limit.TURN


def test_there_is_one_warning_per_silence():
    made = clocks()
    assert isinstance(made.check(300), IdleWarning)
    assert made.check(301) is None
    made.follow(evolve(BEGUN, lines=2, last_sign="Text"), 302)
    assert made.check(601.9) is None
    assert made.check(602).last_sign == "Text"


def test_warnings_are_bounded():
    made = clocks(turn_seconds=1e9)
    count = 0
    for line in range(2, 100):
        now = line * 400.0
        count += isinstance(made.check(now), IdleWarning)
        made.follow(evolve(BEGUN, lines=line), now)
    assert count == MAX_WARNINGS


def test_without_a_setting_the_warning_comes_at_half_the_idle_limit():
    assert run_out(clocks(idle_seconds=100, idle_warn_seconds=None))[0][0] == 50
    assert run_out(clocks(idle_seconds=900, idle_warn_seconds=None))[0][0] == 300


def test_a_warning_names_the_clock_that_will_end_the_turn_first():
    warning = run_out(clocks(turn_seconds=400))[0][1]
    assert (warning.clock, warning.budget_seconds, warning.left_seconds) == (Limit.TURN, 400, 100)


class TestOpenCalls:
    def test_a_call_gets_its_own_timeout_and_a_minute(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, calls={"a": 1200.0}), 10)
        assert run_out(made)[-1] == (1270, Limit.IDLE)

    def test_a_call_that_ends_gives_nothing_any_more(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, calls={"a": 1200.0}), 10)
        made.follow(evolve(BEGUN, lines=3), 20)
        assert run_out(made)[-1] == (920, Limit.IDLE)

    def test_a_short_or_undeclared_timeout_never_shortens_the_idle_limit(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, calls={"a": 1.0, "b": None}), 10)
        assert run_out(made)[-1] == (910, Limit.IDLE)

    def test_the_timeout_runs_from_the_start_of_the_call(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, calls={"a": 2000.0}), 0)
        made.follow(evolve(BEGUN, lines=3, calls={"a": 2000.0}), 1500)
        assert run_out(made)[-1] == (2400, Limit.IDLE)

    def test_no_call_reaches_beyond_the_turn_limit(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, calls={"a": 1e6}), 10)
        assert made.idle_deadline == 10_000
        assert run_out(made)[-1] == (10_000, Limit.TURN)


class TestQuestions:
    def test_an_open_question_waits_for_a_minute(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, queries=frozenset("q")), 5)
        assert run_out(made)[-1] == (65, Limit.APPROVAL)

    def test_other_output_does_not_answer_it(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, queries=frozenset("q")), 5)
        made.follow(evolve(BEGUN, lines=3, queries=frozenset("q")), 60)
        assert made.check(65) is Limit.APPROVAL

    def test_a_later_question_has_a_minute_of_its_own(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, queries=frozenset("q")), 5)
        made.follow(evolve(BEGUN, lines=3, queries=frozenset("r")), 50)
        assert made.check(109) is None
        assert made.check(110) is Limit.APPROVAL


class TestAfterTheResult:
    def test_only_the_exit_clock_runs(self):
        made = clocks(turn_seconds=510)
        made.follow(evolve(BEGUN, lines=2, results=1, resting=True), 500)
        assert run_out(made) == [(530, Limit.EXIT)]

    def test_lines_do_not_delay_it(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, results=1, resting=True), 500)
        made.follow(evolve(BEGUN, lines=9, results=1, resting=True), 529)
        assert made.check(530) is Limit.EXIT

    def test_it_pauses_while_the_cli_works_again_and_runs_from_the_last_result(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, results=1, resting=True), 500)
        made.follow(evolve(BEGUN, lines=3, results=1), 520)
        assert made.check(530) is None
        assert run_out(made, 1000)[-1][0] == 820
        made.follow(evolve(BEGUN, lines=4, results=2, resting=True), 1000)
        assert run_out(made) == [(1030, Limit.EXIT)]

    def test_a_second_result_in_the_same_read_starts_it_anew(self):
        made = clocks()
        made.follow(evolve(BEGUN, lines=2, results=1, resting=True), 500)
        made.follow(evolve(BEGUN, lines=4, results=2, resting=True), 520)
        assert run_out(made) == [(550, Limit.EXIT)]


class TestExtension:
    @pytest.mark.parametrize(
        "clock, idle, turn",
        [
            (Limit.IDLE, 1900, 10_000),
            (Limit.TURN, 900, 11_000),
            (None, 1900, 11_000),
        ],
    )
    def test_time_is_added_to_the_clocks_that_were_named(self, clock, idle, turn):
        made = clocks()
        made.extend(1000, clock)
        assert (made.idle_deadline, made.turn_deadline) == (idle, turn)

    def test_a_grant_is_for_the_silence_that_goes_on(self):
        made = clocks()
        made.extend(1000, Limit.IDLE)
        made.follow(evolve(BEGUN, lines=2), 100)
        assert made.idle_deadline == 1900
        made.follow(evolve(BEGUN, lines=3), 1500)
        assert made.idle_deadline == 2400

    def test_grants_add_up(self):
        made = clocks()
        made.extend(100, Limit.IDLE)
        made.extend(100, Limit.IDLE)
        assert made.idle_deadline == 1100

    def test_no_grant_of_silence_reaches_beyond_the_turn_limit(self):
        made = clocks()
        made.extend(86_400, Limit.IDLE)
        assert made.idle_deadline == 10_000


def test_whoever_wakes_when_told_never_oversleeps_a_limit():
    made = clocks()
    for now in range(0, 2000, 7):
        made.follow(evolve(BEGUN, lines=now + 2), now)
        wake = made.next_wake()
        assert wake > now
        assert made.check(wake - 0.001) is None
