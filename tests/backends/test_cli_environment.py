import pathlib
import sys

import pytest
from scripted_cli import put

from agentsdock.backends.environment import runner_environment, turn_environment
from agentsdock.backends.protocol import TurnContext

CONTEXT = TurnContext("sess_0", "run_0", "http://127.0.0.1:7850", "/state/manifest.json")


@pytest.mark.parametrize(
    "name",
    [
        "AGENTSDOCK_AGENT_TOKEN",
        "ZENITHDOCK_AGENT_TOKEN",
        "ZENITHBOT_AGENT_TOKEN",
        "AGENTSDOCK_PUBLISH_TOKEN",
        "AGENTSDOCK_PROVIDER_AUTHORITY_FILE",
        "AGENTSDOCK_STATE_DIR",
        "AGENTS_SERVER_STATE_DIR",
        "AGENTSDOCK_CHAT_ID",
        "NODE_OPTIONS",
        "LD_PRELOAD",
        "PYTHONPATH",
        "PYTHONHOME",
        "DYLD_INSERT_LIBRARIES",
        "CLAUDECODE",
        "CLAUDECODE_SESSION",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "WATCHDOG_PID",
    ],
)
def test_what_is_not_the_clis_business_is_left_out(name):
    assert name not in runner_environment({name: "x", "PATH": "/bin"})


@pytest.mark.parametrize(
    "name",
    ["LANG", "HTTPS_PROXY", "CURSOR_API_KEY", "CURSOR_CONFIG_DIR", "NODE_EXTRA_CA_CERTS", "XDG"],
)
def test_the_rest_passes_unchanged(name):
    assert runner_environment({name: "x y"})[name] == "x y"


def test_a_key_that_is_set_but_blank_is_unset():
    assert "CURSOR_API_KEY" not in runner_environment({"CURSOR_API_KEY": "  "})
    assert "OPENAI_API_KEY" not in runner_environment({"OPENAI_API_KEY": ""})
    assert "CLAUDE_CONFIG_DIR" not in runner_environment({"CLAUDE_CONFIG_DIR": " "})


def folder(path):
    path.mkdir(parents=True)
    return str(path)


def test_folders_of_user_tools_come_first_where_they_exist(tmp_path):
    bun = folder(tmp_path / ".bun/bin")
    local = folder(tmp_path / ".local/bin")
    nodes = [
        folder(tmp_path / f".nvm/versions/node/v{v}/bin") for v in ("9.1.0", "22.3.1", "22.10.0")
    ]
    folder(tmp_path / ".nvm/versions/node/v30.0.0")
    path = runner_environment({"HOME": str(tmp_path), "PATH": "/usr/bin::/bin"})["PATH"].split(":")
    assert path[-2:] == ["/usr/bin", "/bin"]
    ours = [part for part in path if part.startswith(str(tmp_path))]
    assert ours == [local, bun, nodes[2], nodes[1], nodes[0]]


def test_a_folder_that_is_on_the_path_keeps_its_place(tmp_path):
    local = folder(tmp_path / ".local/bin")
    path = runner_environment({"HOME": str(tmp_path), "PATH": f"/mine:{local}"})["PATH"]
    assert path.split(":")[-2:] == ["/mine", local]
    assert path.split(":").count(local) == 1


def test_a_turn_knows_its_chat_its_manifest_and_the_server():
    base = {"PATH": "/usr/bin", "LANG": "C"}
    env = turn_environment(base, CONTEXT, "/opt/cursor/agent")
    assert env["AGENTSDOCK_CHAT_ID"] == "sess_0"
    assert env["AGENTSDOCK_MANIFEST_PATH"] == "/state/manifest.json"
    assert env["AGENTSDOCK_SERVER_URL"] == "http://127.0.0.1:7850"
    assert env["LANG"] == "C"
    assert env["PATH"] == "/opt/cursor:/usr/bin"
    assert base == {"PATH": "/usr/bin", "LANG": "C"}


def test_the_folder_of_the_program_is_not_put_on_the_path_twice():
    env = turn_environment({"PATH": "/usr/bin:/opt/cursor"}, CONTEXT, "/opt/cursor/agent")
    assert env["PATH"] == "/usr/bin:/opt/cursor"


def test_only_helpers_that_exist_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    jobs = put(tmp_path, "agentsdock-jobs")
    env = turn_environment({"PATH": ""}, CONTEXT, "/opt/cursor/agent")
    assert env["AGENTSDOCK_JOBS_CLI"] == str(jobs)
    assert "AGENTSDOCK_CHATS_CLI" not in env
    assert "AGENTSDOCK_PUBLISH_CLI" not in env
    assert pathlib.Path(env["AGENTSDOCK_JOBS_CLI"]).is_absolute()
