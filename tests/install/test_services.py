"""What keeps the server running: files that the managers read as they are meant."""

import os
import pathlib
import plistlib
import shutil
import subprocess
import sys

import pytest
import service
import uninstall
from prefix import InstallError, Prefix
from service import Launchd, Systemd, quoted
from systemctl_stub import words_of

PATHS = [
    "plain",
    "a b",
    "50% off",
    "it's",
    'x"y',
    "dollar$HOME",
    "${HOME}",
    "back\\slash",
    "ümlaut",
    "%h",
    "semi;colon & more",
    "日本",
]


@pytest.mark.parametrize("name", PATHS)
def test_a_unit_starts_exactly_the_path_that_was_meant(name):
    path = pathlib.Path("/home/u") / name / "bin/agentsdock"
    assert words_of(f"/bin/sh {quoted(path)} serve") == ["/bin/sh", str(path), "serve"]


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Answers of the manager by command, and what was asked."""
    asked, answers = [], {}

    def run(words, *, check=True):
        asked.append(" ".join(words))
        for beginning, answer in answers.items():
            if " ".join(words).startswith(beginning):
                found = answer.pop(0) if isinstance(answer, list) else answer
                if isinstance(found, Exception):
                    if check:
                        raise found
                    return ""
                return found
        return ""

    monkeypatch.setattr(service, "run", run)
    monkeypatch.setattr(service.time, "sleep", lambda _: None)
    monkeypatch.setattr(service.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return asked, answers


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["plain", 'a b 50% it\'s "x" $HOME ümlaut'])
def test_systemd_itself_takes_the_unit(tmp_path, calls, name):
    command = tmp_path / name / "bin/agentsdock"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit = Systemd(Prefix(tmp_path / name))
    unit.install()
    verify = ["systemd-analyze", "--user", "verify", str(unit.path)]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ended = subprocess.run(verify, env=environ, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_unit_says_what_happens_to_turns_and_memory(tmp_path, calls):
    unit = Systemd(Prefix(tmp_path / "prefix"))
    unit.install()
    lines = unit.path.read_text().splitlines()
    for line in (
        "Delegate=yes",
        "KillMode=mixed",
        "OOMPolicy=continue",
        "RestartPreventExitStatus=2 3",
        "TimeoutStopSec=90",
    ):
        assert line in lines
    assert any(line.startswith("MemoryMax=") for line in lines)
    assert any(line.startswith("TasksMax=") for line in lines)
    assert not any(line.startswith(("EnvironmentFile=", "WorkingDirectory=")) for line in lines)


def test_without_lingering_it_is_turned_on_or_warned_about(tmp_path, calls, capsys):
    _, answers = calls
    unit = Systemd(Prefix(tmp_path / "prefix"))
    answers["loginctl show-user"] = "Linger=no"
    unit.install()
    assert "lingering is now on" in capsys.readouterr().out
    answers["loginctl enable-linger"] = InstallError("denied")
    unit.install()
    assert "WARNING" in capsys.readouterr().out
    answers["loginctl show-user"] = "Linger=yes"
    unit.install()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("given", [None, "/run/user/99999", "/nonexistent"])
def test_the_users_own_manager_is_found_over_ssh(tmp_path, calls, monkeypatch, given):
    asked, answers = calls
    monkeypatch.setattr(service.os, "geteuid", lambda: 1000)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/elsewhere")
    if given is None:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", given)
        answers["systemctl --user show-environment"] = [InstallError("no bus"), ""]
    Systemd(Prefix(tmp_path / "prefix")).preflight()
    assert service.os.environ["XDG_RUNTIME_DIR"] == "/run/user/1000"
    assert "DBUS_SESSION_BUS_ADDRESS" not in service.os.environ
    assert len(asked) == (1 if given is None else 2)


@pytest.mark.parametrize(
    ("said", "alive"),
    [
        ("ActiveState=active\nSubState=running", True),
        ("ActiveState=activating\nSubState=start", True),
        ("ActiveState=activating\nSubState=auto-restart", False),
        ("ActiveState=failed\nSubState=failed", False),
        ("ActiveState=inactive\nSubState=dead", False),
        ("", False),
    ],
)
def test_a_unit_that_waits_for_its_next_try_is_not_alive(tmp_path, calls, said, alive):
    calls[1]["systemctl --user show agentsdock.service"] = said
    assert Systemd(Prefix(tmp_path)).alive() is alive


@pytest.mark.parametrize(
    ("said", "alive"),
    [
        ("state = running\nlast exit code = 1", True),
        ("state = spawn scheduled\nlast exit code = (never exited)", True),
        ("state = spawn scheduled\nlast exit code = 2", False),
        (InstallError("Could not find service"), False),
    ],
)
def test_an_agent_that_has_failed_is_not_alive(tmp_path, calls, said, alive):
    calls[1]["launchctl print"] = said
    assert Launchd(Prefix(tmp_path)).alive() is alive


def test_the_unit_of_another_installation_is_left_alone(tmp_path, calls):
    Systemd(Prefix(tmp_path / "one")).install()
    with pytest.raises(InstallError, match="another installation"):
        Systemd(Prefix(tmp_path / "two")).preflight()
    Systemd(Prefix(tmp_path / "one")).preflight()


@pytest.mark.parametrize("name", PATHS)
def test_a_plist_names_exactly_the_path(tmp_path, calls, name):
    agent = Launchd(Prefix(tmp_path / name))
    agent.install()
    written = plistlib.loads(agent.path.read_bytes())
    assert written["ProgramArguments"] == ["/bin/sh", str(agent.prefix.command), "serve"]
    assert written["KeepAlive"] == {"SuccessfulExit": False}
    assert written["ThrottleInterval"] >= 10
    agent.preflight()
    with pytest.raises(InstallError, match="another installation"):
        Launchd(Prefix(tmp_path / "other")).preflight()


def test_launchd_is_waited_for_until_the_label_is_gone(tmp_path, calls):
    asked, answers = calls
    gone = InstallError("Could not find service")
    answers["launchctl print gui/"] = ["state = running", "state = stopping", gone]
    answers["launchctl print user/"] = gone
    Launchd(Prefix(tmp_path)).stop()
    assert [one for one in asked if "bootout" in one] != []
    assert answers["launchctl print gui/"] == []


def test_launchd_is_asked_again_and_in_the_users_domain_over_ssh(tmp_path, calls):
    asked, answers = calls
    answers["launchctl bootstrap gui/"] = InstallError("Bootstrap failed: 125")
    answers["launchctl bootstrap user/"] = [InstallError("Bootstrap failed: 5"), ""]
    Launchd(Prefix(tmp_path)).start()
    assert len(asked) == 4
    answers["launchctl bootstrap user/"] = InstallError("Bootstrap failed: 5")
    with pytest.raises(InstallError, match="Bootstrap failed: 5"):
        Launchd(Prefix(tmp_path)).start()


def make_installation(root, state):
    prefix = Prefix(root)
    prefix.prepare()
    prefix.change_settings({"AGENTSDOCK_STATE_DIR": str(state)})
    return prefix


def make_state(root):
    root.mkdir(parents=True)
    for name in ("agentsdock.db", "agentsdock.lock", "token"):
        (root / name).write_text("")
    return root


@pytest.fixture
def unmanaged(calls, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.mark.usefixtures("unmanaged")
class TestUninstall:
    def test_the_state_is_kept_unless_told_otherwise(self, tmp_path):
        state = make_state(tmp_path / "st ate")
        prefix = make_installation(tmp_path / "pre'fix", state)
        (prefix.root / "mine.txt").write_text("not the installer's")
        uninstall.uninstall(prefix, purge=False, dry=True)
        assert prefix.settings_file.exists()
        uninstall.uninstall(prefix, purge=False, dry=False)
        assert [path.name for path in prefix.root.iterdir()] == ["mine.txt"]
        assert (state / "token").exists()

    def test_told_otherwise_it_goes_too(self, tmp_path):
        state = make_state(tmp_path / "state")
        prefix = make_installation(tmp_path / "prefix", state)
        uninstall.uninstall(prefix, purge=True, dry=False)
        assert not state.exists()
        assert not prefix.root.exists()

    @pytest.mark.parametrize("kind", ["home", "above home", "foreign", "link"])
    def test_what_is_no_servers_state_is_never_removed(self, tmp_path, monkeypatch, kind):
        home = tmp_path / "users/me"
        home.mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        place = {"home": home, "above home": home.parent}.get(kind, tmp_path / "place")
        if kind == "link":
            place.symlink_to(make_state(tmp_path / "real"))
        elif kind != "foreign":
            for name in ("agentsdock.db", "agentsdock.lock"):
                (place / name).write_text("")
        else:
            place.mkdir()
            (place / "precious").write_text("")
        prefix = make_installation(tmp_path / "prefix", place)
        with pytest.raises(InstallError, match="is not removed"):
            uninstall.uninstall(prefix, purge=True, dry=False)
        assert prefix.settings_file.exists()
        assert place.exists()

    @pytest.mark.parametrize("kind", ["absent", "foreign", "root"])
    def test_what_is_no_installation_is_never_removed(self, tmp_path, kind):
        place = tmp_path / "place"
        if kind == "foreign":
            place.mkdir()
            (place / "current").write_text("mine")
        with pytest.raises(InstallError):
            uninstall.uninstall(
                Prefix(pathlib.Path("/") if kind == "root" else place), purge=False, dry=False
            )
        assert place.exists() is (kind == "foreign")

    def test_a_link_in_the_prefix_is_removed_and_not_what_it_leads_to(self, tmp_path):
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "kept").write_text("")
        prefix = make_installation(tmp_path / "prefix", make_state(tmp_path / "state"))
        (prefix.root / "environments").rmdir()
        (prefix.root / "environments").symlink_to(precious)
        (prefix.root / "releases" / "x").symlink_to(precious)
        uninstall.uninstall(prefix, purge=False, dry=False)
        assert (precious / "kept").exists()


def test_settings_keep_what_the_operator_wrote(tmp_path):
    prefix = Prefix(tmp_path)
    prefix.change_settings({"AGENTSDOCK_AGENT_PORT": "1", "PATH": "/a b:/it's"})
    with open(prefix.settings_file, "a") as file:
        file.write("# mine\nAGENTSDOCK_BACKEND=cursor # why\n")
    prefix.change_settings({"AGENTSDOCK_AGENT_PORT": "2"})
    assert prefix.settings() == {
        "AGENTSDOCK_AGENT_PORT": "2",
        "PATH": "/a b:/it's",
        "AGENTSDOCK_BACKEND": "cursor",
    }
    assert "# mine" in prefix.settings_file.read_text()
    words = ["sh", "-c", '. "$1"; printf %s "$PATH"', "sh", str(prefix.settings_file)]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "/a b:/it's"
    with open(prefix.settings_file, "a") as file:
        file.write("X='open\n")
    with pytest.raises(InstallError, match="line 7"):
        prefix.settings()


@pytest.mark.parametrize("name", ["line\nfeed", "bell\x07", "half\udce9"])
def test_a_name_that_no_service_could_start_is_refused_at_once(tmp_path, name):
    with pytest.raises(InstallError):
        Prefix(tmp_path / name).refuse_foreign()
