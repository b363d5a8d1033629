"""The command as a whole: fast to start, its server found, its secrets kept."""

import json
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import agentsdock
from agentsdock import config
from agentsdock.cli.connection import Connection, connected, stored_token, written_url
from agentsdock.cli.main import COMMANDS, main

SERVER_SIDE = ("quart", "quart_trio", "hypercorn", "apsw", "structlog")
SLOW = ("trio", "httpx", "rich", "attr", "msgspec")
ALIVE, URL = os.getpid(), "http://127.0.0.1:7851"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("AGENTSDOCK_", "ZENITHBOT_", "ZENITHDOCK_", "AGENTS_SERVER_")):
            monkeypatch.delenv(name)


def invoke(*args, **kwargs):
    return CliRunner().invoke(main, list(args), **kwargs)


def loaded_by(code):
    """Top-level modules that are loaded once ``code`` has run in a fresh interpreter."""
    listing = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"],
        capture_output=True,
        check=True,
        timeout=30,
        text=True,
    )
    return set(done.stdout.splitlines()[-1].split())


RUN = """
from click.testing import CliRunner
from agentsdock.cli.main import main
result = CliRunner().invoke(main, {args!r})
assert result.exit_code == {status}, result.output
"""


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["turn", "--help"]], ids=str)
def test_help_imports_neither_server_nor_client(args):
    loaded = loaded_by(RUN.format(args=args, status=0))
    assert "click" in loaded
    assert not loaded & {*SERVER_SIDE, *SLOW} - {"attr"}


@pytest.mark.parametrize(
    "args",
    [
        ["sessions"],
        ["stop", "sess_0"],
        ["turn", "hello"],
        ["queue", "list", "sess_0"],
        ["files", "list", "sess_0"],
    ],
    ids=lambda args: args[0],
)
def test_client_commands_never_import_the_server(args, tmp_path):
    args = [*args, "--url", "http://127.0.0.1:1", "--state-dir", str(tmp_path)]
    loaded = loaded_by(RUN.format(args=args, status=1))
    assert "httpx" in loaded
    assert not loaded & {*SERVER_SIDE, "rich", "pygments"}


def test_replay_needs_neither_server_nor_trio(tmp_path):
    recording = tmp_path / "recording"
    recording.touch()
    loaded = loaded_by(RUN.format(args=["replay", str(recording)], status=0))
    assert not loaded & {*SERVER_SIDE, "trio", "httpx"}


def test_every_command_is_there_and_says_what_it_is_for():
    text = invoke("--help").stdout
    for name in COMMANDS:
        assert name in text
        done = invoke(name, "--help")
        assert done.exit_code == 0
        assert len(done.stdout.splitlines()) > 3
    assert agentsdock.__version__ in invoke("--version").stdout


def test_an_unknown_command_is_bad_use():
    assert invoke("dance").exit_code == 2


def address(tmp_path, pid=ALIVE):
    (tmp_path / "server.json").write_text(json.dumps({"url": URL, "pid": pid}))


def given(tmp_path, *args, env=None):
    """The connection that a command would get."""
    seen = []

    @click.command()
    @connected
    def command(connection):
        seen.append(connection)

    args = [*args, "--state-dir", str(tmp_path)]
    assert CliRunner().invoke(command, args, env=env).exit_code == 0
    return seen[0]


def test_the_server_of_the_state_directory_is_found_with_its_token(tmp_path):
    address(tmp_path)
    (tmp_path / "token").write_text("secret\n")
    connection = given(tmp_path)
    assert (connection.url, connection.token) == (URL, "secret")


def test_an_address_of_a_server_that_has_gone_is_not_used(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    address(tmp_path, pid=gone.pid)
    assert written_url(tmp_path) is None
    assert given(tmp_path).url == "http://127.0.0.1:7850"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "x"}', '{"url": "x", "pid": "y"}'])
def test_a_damaged_address_file_is_as_none(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    assert written_url(tmp_path) is None


def test_options_overrule_variables_and_both_overrule_files(tmp_path):
    address(tmp_path)
    (tmp_path / "token").write_text("stored")
    env = {"AGENTSDOCK_URL": "http://127.0.0.1:2", "AGENTSDOCK_AGENT_TOKEN": "from-env"}
    connection = given(tmp_path, env=env)
    assert (connection.url, connection.token) == ("http://127.0.0.1:2", "from-env")
    connection = given(tmp_path, "--url", "http://127.0.0.1:3", "--token", "given", env=env)
    assert (connection.url, connection.token) == ("http://127.0.0.1:3", "given")


@pytest.mark.parametrize(
    ("url", "goes_along"),
    [
        ("http://127.0.0.1:9000", True),
        ("http://localhost:9000", True),
        ("http://[::1]:9000", True),
        ("http://example.org:7850", False),
        ("http://127.0.0.1.example.org", False),
        ("http://[bad", False),
    ],
)
def test_a_stored_token_never_leaves_the_machine_by_itself(tmp_path, url, goes_along):
    (tmp_path / "token").write_text("stored")
    assert Connection(url, None, tmp_path).token == ("stored" if goes_along else None)


def test_the_state_directory_has_the_names_that_the_server_takes(tmp_path):
    (tmp_path / "token").write_text("stored\n")
    for name in ("AGENTSDOCK_STATE_DIR", "ZENITHBOT_AGENT_DIR", "AGENTS_SERVER_STATE_DIR"):
        assert invoke("token", "show", env={name: str(tmp_path)}).stdout == "stored\n"
        (tmp_path / "token").chmod(0o600)
        assert config.load({name: str(tmp_path)}).token == "stored"


def test_token_show_prints_what_is_set_or_stored(tmp_path):
    state = ["--state-dir", str(tmp_path)]
    missing = invoke("token", "show", *state)
    assert missing.exit_code == 1
    assert missing.stdout == ""
    assert "no token" in missing.stderr
    (tmp_path / "token").write_text("stored\n")
    assert invoke("token", "show", *state).stdout == "stored\n"
    env = {"AGENTSDOCK_AGENT_TOKEN": "from-env"}
    assert invoke("token", "show", *state, env=env).stdout == "from-env\n"
    assert stored_token(tmp_path / "nowhere") is None


def test_no_server_is_told_in_one_line_with_status_1(tmp_path):
    done = invoke("sessions", "--url", "http://127.0.0.1:1", "--state-dir", str(tmp_path))
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "no answer from http://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.output


def test_a_bad_setting_stops_serve_with_status_2_and_its_name(tmp_path):
    env = {"AGENTSDOCK_MAX_ACTIVE_AGENT_RUNS": "many"}
    done = invoke("serve", "--state-dir", str(tmp_path), env=env)
    assert done.exit_code == 2
    assert "AGENTSDOCK_MAX_ACTIVE_AGENT_RUNS" in done.stderr


def test_serving_other_machines_without_a_token_is_refused(tmp_path):
    done = invoke("serve", "--bind", "0.0.0.0", "--state-dir", str(tmp_path))
    assert done.exit_code == 2
    assert "AGENTSDOCK_AGENT_TOKEN" in done.stderr


def test_a_new_chat_and_an_old_one_exclude_each_other(tmp_path):
    for extra in (["--new"], ["--cwd", str(tmp_path)]):
        assert invoke("turn", "--session", "sess_1", *extra, "hello").exit_code == 2
