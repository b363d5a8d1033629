"""Settings: where each comes from, its default, and what is refused by which name."""

import pathlib

import pytest
from attrs import fields_dict

from agentsdock import config
from agentsdock.config import MIB, SettingError, Settings, load

EMPTY: dict[str, str] = {}

# suffix, how it is read, default, floor (None: any)
NUMBERS = [
    ("AGENT_PORT", lambda s: s.port, 7850, 0),
    ("MAX_ACTIVE_AGENT_RUNS", lambda s: s.max_active_runs, 10, 0),
    ("MIN_START_AVAILABLE_MEM_MB", lambda s: s.min_start_available_mem_mb, 2048, 0),
    ("JOB_BUSY_RETRY_SECONDS", lambda s: s.busy_retry_seconds, 60, 5),
    ("JOB_MAX_ACTIVE_RUNS", lambda s: s.job_max_active_runs, 0, 0),
    ("JOB_MIN_AVAILABLE_MEM_MB", lambda s: s.job_min_available_mem_mb, 4096, 0),
    ("RUNTIME_CATALOG_TIMEOUT_SECONDS", lambda s: s.catalog_timeout_seconds, 6, 0.1),
    ("RUNTIME_DIAGNOSTIC_TTL_SECONDS", lambda s: s.diagnostic_ttl_seconds, 60, 0),
    ("LAUNCH_PACE", lambda s: s.launch_pace, 0, 0),
    ("SESSION_SYSTEM_PROMPT_CHARS", lambda s: s.system_prompt_chars, 24_000, 1),
    ("SESSION_EVENT_LIMIT", lambda s: s.session_event_limit, 100, 1),
    ("MAX_EVENT_RESPONSE_LIMIT", lambda s: s.max_event_response_limit, 1000, 1),
    ("MAX_UPLOAD_BYTES", lambda s: s.max_upload_bytes, 25 * 1024 * MIB, 1),
    ("FORK_MEMORY_CHARS", lambda s: s.fork_memory_chars, 24_000, 4000),
    ("FORK_MEMORY_ITEM_CHARS", lambda s: s.fork_memory_item_chars, 1800, 1),
    ("HISTORY_IMPORT_LIMIT", lambda s: s.history_import_limit, 400, 1),
    ("HISTORY_IMPORT_TEXT_CHARS", lambda s: s.history_import_text_chars, 12_000, 1),
    ("WEBSOCKET_STALL_SECONDS", lambda s: s.websocket_stall_seconds, 10, 0.1),
    ("CAPSULE_MAX_BYTES", lambda s: s.capsule_bytes, 64 * MIB, 0),
    ("CAPSULES_TOTAL_BYTES", lambda s: s.capsules_total_bytes, 1024 * MIB, 0),
    ("CODE_DIFF_SNAPSHOT_TIMEOUT_SECONDS", lambda s: s.code_diff_seconds, 120, 1),
    ("CODE_DIFF_START_DELAY_SECONDS", lambda s: s.code_diff_start_seconds, 3, 0),
]


def of_each_cli(suffix, read, cursor, others, floor):
    return [
        (f"{name.upper()}_{suffix}", lambda s, n=name: read(s.backends[n]), default, floor)
        for name, default in (("cursor", cursor), ("claude", others), ("codex", others))
    ]


NUMBERS += of_each_cli("STARTUP_TIMEOUT_SECONDS", lambda b: b.limits.startup_seconds, 120, 120, 5)
NUMBERS += of_each_cli("TURN_TIMEOUT_SECONDS", lambda b: b.limits.turn_seconds, 21_600, 86_400, 120)
NUMBERS += of_each_cli("IDLE_TIMEOUT_SECONDS", lambda b: b.limits.idle_seconds, 900, 1800, 30)
NUMBERS += of_each_cli("POST_TERMINAL_EXIT_SECONDS", lambda b: b.limits.exit_seconds, 30, 30, 0.1)
NUMBERS += of_each_cli("APPROVAL_WAIT_SECONDS", lambda b: b.limits.approval_seconds, 60, 60, 1)
NUMBERS += of_each_cli(
    "STDERR_TAIL_BYTES", lambda b: b.limits.stderr_tail_bytes, 65_536, 65_536, 4096
)
NUMBERS += of_each_cli("STDERR_DRAIN_TIMEOUT_SECONDS", lambda b: b.limits.drain_seconds, 2, 2, 0.1)
NUMBERS += of_each_cli(
    "GUARD_TEARDOWN_GRACE_SECONDS", lambda b: b.limits.teardown_grace_seconds, 1.5, 1.5, 1
)
NUMBERS += of_each_cli("MAX_STREAM_EVENTS", lambda b: b.bounds.stream_lines, 200_000, 200_000, 100)
NUMBERS += of_each_cli(
    "MAX_STREAM_BYTES", lambda b: b.bounds.stream_bytes, 512 * MIB, 512 * MIB, 16 * MIB
)
NUMBERS += of_each_cli(
    "TEXT_EVENT_MAX_CHARS", lambda b: b.bounds.text_chars, 131_072, 131_072, 12_000
)
NUMBERS += of_each_cli(
    "ACCUMULATED_TEXT_MAX_CHARS",
    lambda b: b.bounds.accumulated_text_chars,
    262_144,
    262_144,
    131_072,
)
NUMBERS += of_each_cli("MAX_TOOL_CALLS", lambda b: b.bounds.tool_calls, 4096, 4096, 32)

SHARED = [
    ("STOP_GRACE_SECONDS", lambda b: b.limits.stop_grace_seconds, 2.0, 0),
    ("PROCESS_STREAM_LIMIT", lambda b: b.bounds.line_bytes, 32 * MIB, 65_536),
    ("CODEX_APP_SERVER_TOOL_OUTPUT_MAX_CHARS", lambda b: b.bounds.tool_chars, 12_000, 12_000),
    ("CODEX_APP_SERVER_TOOL_OUTPUT_MAX_CHARS", lambda b: b.bounds.thought_chars, 12_000, 12_000),
]
NUMBERS += [
    (suffix, lambda s, n=name, r=read: r(s.backends[n]), default, floor)
    for suffix, read, default, floor in SHARED
    for name in ("cursor", "claude", "codex")
]


@pytest.mark.parametrize(("suffix", "read", "default", "floor"), NUMBERS)
def test_a_number(suffix, read, default, floor):
    name, legacy = f"AGENTSDOCK_{suffix}", f"ZENITHBOT_{suffix}"
    larger = max(default, floor) + 10
    assert read(load(EMPTY)) == default
    assert read(load({name: "  "})) == default
    assert read(load({name: f" {larger} "})) == larger
    assert read(load({legacy: str(larger)})) == larger
    assert read(load({name: "", legacy: str(larger)})) == larger
    assert read(load({name: str(larger), legacy: str(larger + 1)})) == larger
    assert read(load({name: str(floor)})) == floor
    for bad in ("many", "nan", "1e400", str(floor - 0.05), "-1"):
        with pytest.raises(SettingError) as refused:
            load({name: bad})
        assert name in str(refused.value)
        assert repr(bad) in str(refused.value)
        assert f"{floor:g}" in str(refused.value)
    with pytest.raises(SettingError, match=legacy):
        load({legacy: "many"})


def test_every_setting_has_a_test():
    told = {"AGENT_PORT", *(suffix for suffix, *_ in NUMBERS)}
    others = {"state_dir", "bind", "token", "cwd", "default_backend", "allowed_hosts"}
    others |= {"allowed_origins", "backends", "environ"}
    others |= {"claude_projects_root", "codex_sessions_root"}
    numbers = {suffix for suffix in told if not suffix.startswith(("CURSOR", "CLAUDE", "CODEX"))}
    shared = {suffix for suffix, *_ in SHARED}
    assert len(numbers - shared) == len(set(fields_dict(Settings)) - others)


@pytest.mark.parametrize(
    ("environ", "claude", "codex"),
    [
        ({}, "~/.claude/projects", "~/.codex/sessions"),
        ({"CODEX_HOME": "/c"}, "~/.claude/projects", "/c/sessions"),
        (
            {"CODEX_HOME": "/c", "CODEX_SESSIONS_ROOT": "/s", "CLAUDE_PROJECTS_ROOT": "/p"},
            "/p",
            "/s",
        ),
        (
            {"CODEX_HOME": " ", "CLAUDE_PROJECTS_ROOT": ""},
            "~/.claude/projects",
            "~/.codex/sessions",
        ),
    ],
)
def test_transcripts_are_where_their_clis_keep_them(environ, claude, codex):
    settings = load(environ)
    assert settings.claude_projects_root == pathlib.Path(claude).expanduser()
    assert settings.codex_sessions_root == pathlib.Path(codex).expanduser()


def test_a_port_has_a_ceiling_too():
    with pytest.raises(SettingError, match="from 0 to 65535, not '65536'"):
        load({"AGENTSDOCK_AGENT_PORT": "65536"})


def test_a_turn_may_always_take_as_long_as_its_start():
    settings = load(
        {
            "AGENTSDOCK_CLAUDE_STARTUP_TIMEOUT_SECONDS": "300",
            "AGENTSDOCK_REQUEST_TIMEOUT_SECONDS": "60",
        }
    )
    assert settings.backends["claude"].limits.turn_seconds == 300
    with pytest.raises(SettingError, match="at least 300"):
        load(
            {
                "AGENTSDOCK_CLAUDE_STARTUP_TIMEOUT_SECONDS": "300",
                "AGENTSDOCK_CLAUDE_TURN_TIMEOUT_SECONDS": "60",
            }
        )


def test_the_request_timeout_is_that_of_the_clis_that_may_be_silent():
    limits = load({"AGENTSDOCK_REQUEST_TIMEOUT_SECONDS": "5000"}).backends
    assert limits["claude"].limits.turn_seconds == 5000
    assert limits["codex"].limits.turn_seconds == 5000
    assert limits["cursor"].limits.turn_seconds == 21_600


def test_silence_is_warned_of_at_a_third_or_half():
    limits = {name: backend.limits for name, backend in load(EMPTY).backends.items()}
    assert {name: limit.warn_seconds for name, limit in limits.items()} == {
        "cursor": 300,
        "claude": 600,
        "codex": 600,
    }
    short = load({"AGENTSDOCK_CLAUDE_IDLE_TIMEOUT_SECONDS": "100"}).backends["claude"].limits
    assert short.warn_seconds == 50


def test_the_common_idle_limits_win_where_they_are_set():
    settings = load(
        {
            "AGENTSDOCK_IDLE_WARN_SECONDS": "7",
            "AGENTSDOCK_IDLE_KILL_SECONDS": "20",
            "AGENTSDOCK_CURSOR_IDLE_TIMEOUT_SECONDS": "500",
        }
    )
    for backend in settings.backends.values():
        assert (backend.limits.warn_seconds, backend.limits.idle_seconds) == (7, 20)
    for name in ("AGENTSDOCK_IDLE_WARN_SECONDS", "AGENTSDOCK_IDLE_KILL_SECONDS"):
        with pytest.raises(SettingError, match=name):
            load({name: "0"})


def test_the_final_text_may_always_be_as_long_as_one_event():
    settings = load({"AGENTSDOCK_CURSOR_TEXT_EVENT_MAX_CHARS": "300000"})
    assert settings.backends["cursor"].bounds.accumulated_text_chars == 300_000


def test_places_are_expanded_and_absolute(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(EMPTY).state_dir == tmp_path / ".agentsdock"
    assert load(EMPTY).cwd == str(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load({"AGENTSDOCK_STATE_DIR": "here"}).state_dir == tmp_path / "here"
    assert load({"AGENTS_SERVER_STATE_DIR": "~/there"}).state_dir == tmp_path / "there"
    assert load({"ZENITHBOT_AGENT_DIR": "/a"}).state_dir == pathlib.Path("/a")
    assert load(EMPTY, state_dir=pathlib.Path("/b")).state_dir == pathlib.Path("/b")


def test_a_working_directory_that_is_not_there_is_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / "place"
    assert load({"AGENTSDOCK_AGENT_CWD": str(place)}).cwd == str(tmp_path)
    place.mkdir()
    assert load({"AGENTSDOCK_AGENT_CWD": "~/place"}).cwd == str(place)
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    assert pathlib.Path(load(EMPTY).cwd).is_dir()


def test_the_backend_of_new_chats():
    assert load(EMPTY).default_backend == "claude"
    assert load({"ZENITHBOT_BACKEND": "cursor"}).default_backend == "cursor"
    with pytest.raises(SettingError, match=r"AGENTSDOCK_BACKEND .*claude, codex, cursor.*'other'"):
        load({"AGENTSDOCK_BACKEND": "other"})


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_what_other_machines_can_reach_needs_a_token(bind):
    for how in (
        lambda environ: load({**environ, "AGENTSDOCK_AGENT_BIND": bind}),
        lambda environ: load(environ, bind=bind),
    ):
        with pytest.raises(SettingError, match="AGENTSDOCK_AGENT_TOKEN"):
            how({})
        with pytest.raises(SettingError, match="AGENTSDOCK_AGENT_TOKEN"):
            how({"AGENTSDOCK_AGENT_TOKEN": "  "})
        assert how({"AGENTSDOCK_AGENT_TOKEN": "secret"}).bind == bind


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1", "localhost"])
def test_the_loopback_needs_none(bind):
    assert load({"AGENTSDOCK_AGENT_BIND": bind}).token is None
    assert load(EMPTY).bind == "127.0.0.1"


def test_the_token_has_its_aliases():
    for name in ("AGENTSDOCK_AGENT_TOKEN", "ZENITHBOT_AGENT_TOKEN", "ZENITHDOCK_AGENT_TOKEN"):
        assert load({name: " secret "}).token == "secret"


def test_lists_are_split_at_commas():
    settings = load({"AGENTSDOCK_ALLOWED_HOSTS": " a.example , b.example,,"})
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.allowed_origins == ()


def test_programs_have_bare_names():
    backends = load({"CURSOR_BIN": " /opt/agent ", "CLAUDE_BIN": ""}).backends
    assert backends["cursor"].binary == "/opt/agent"
    assert backends["claude"].binary is None


def test_the_command_line_overrules():
    settings = load({"AGENTSDOCK_AGENT_PORT": "1"}, port=0, bind="::1")
    assert (settings.port, settings.bind) == (0, "::1")
    assert load({"AGENTSDOCK_AGENT_PORT": "1"}, port=None, bind=None).port == 1


def test_settings_do_not_show_secrets():
    secrets = {"CURSOR_API_KEY": "hunter2", "AGENTSDOCK_AGENT_TOKEN": "hunter2"}
    assert "hunter2" not in repr(load(secrets))
    assert config.load({"A": "b"}).environ == {"A": "b"}


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text("from-the-file\n")
    return path


def test_the_token_of_the_state_folder_counts_where_no_variable_is_set(stored):
    where = {"AGENTSDOCK_STATE_DIR": str(stored.parent)}
    assert load(where).token == "from-the-file"
    assert load({**where, "AGENTSDOCK_AGENT_TOKEN": "given"}).token == "given"
    assert load({**where, "AGENTSDOCK_AGENT_BIND": "0.0.0.0"}).bind == "0.0.0.0"
    stored.write_text(" \n")
    assert load(where).token is None


def test_a_token_that_others_can_read_or_that_is_none_stops_the_start(stored):
    where = {"AGENTSDOCK_STATE_DIR": str(stored.parent)}
    stored.chmod(0o640)
    with pytest.raises(SettingError, match="chmod 600"):
        load(where)
    stored.chmod(0o600)
    stored.write_bytes(b"\xff")
    with pytest.raises(SettingError, match="holds no token"):
        load(where)
    stored.unlink()
    stored.symlink_to(stored.parent / "elsewhere")
    with pytest.raises(SettingError, match="cannot be read"):
        load(where)
