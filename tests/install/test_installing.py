"""Installations in a scratch home, with real servers and a stand-in for systemd."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import apsw
import environments
import install
import prefix
import pytest
import runtime_manifest
from homes import Home, make_checkout

from agentsdock.store.schema import MIGRATIONS

SCHEMA = len(MIGRATIONS)
LAST_STEP = "MIGRATIONS: Sequence[Migration] = "


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def migrating(text):
    """The schema with one more step."""
    return text + '\nMIGRATIONS = (*MIGRATIONS, ("CREATE TABLE newer (x)",))\n'


def failing(where):
    return lambda text: f"{text}\nraise RuntimeError('broken on purpose {where}')\n"


def dying_when_it_listens(text):
    return text.replace('log.info("listening"', 'os._exit(9)\n                log.info("listening"')


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """Made when asked for: by name, a checkout."""
    folder = tmp_path_factory.mktemp("releases")
    recipes = {
        "1": ("1.0.0", ()),
        "2": ("2.0.0", ()),
        "2 migrating": ("2.0.0", [("agentsdock/store/schema.py", migrating)]),
        "2 not importable": ("2.0.0", [("agentsdock/chats/queue.py", failing("here"))]),
        "2 dying": (
            "2.0.0",
            [
                ("agentsdock/store/schema.py", migrating),
                ("agentsdock/app.py", dying_when_it_listens),
            ],
        ),
    }
    made = {}

    def release(name):
        if name not in made:
            version, edits = recipes[name]
            made[name] = make_checkout(folder / name, version, edits)
        return made[name]

    return release


@pytest.fixture(scope="module")
def template(releases, tmp_path_factory):
    """A home with version 1, whose service is stopped, and others at hand; tests take copies."""
    home = Home(tmp_path_factory.mktemp("template") / "home")
    port = free_port()
    ended = home.install(releases("1"), "--port", port)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    home.close()
    for name in ("2 migrating", "2 dying"):
        home.bring(releases(name), SCHEMA + 1)
    return home


@pytest.fixture
def first(template, tmp_path):
    """A home of version 1 whose service runs, with one chat."""
    home = Home.__new__(Home)
    home.root = tmp_path / "home"
    shutil.copytree(template.root, home.root, symlinks=True)
    for name in ("prefix", "state", "bin", "stub"):
        setattr(home, name, home.root / getattr(template, name).relative_to(template.root))
    old, new = str(template.root), str(home.root)
    for path in (
        home.prefix / "settings.env",
        home.prefix / "bin/agentsdock",
        home.root / ".config/systemd/user/agentsdock.service",
        home.bin / "journalctl",
    ):
        path.write_text(path.read_text().replace(old, new))
    port = free_port()
    settings = home.prefix / "settings.env"
    lines = [x for x in settings.read_text().splitlines() if "AGENT_PORT" not in x]
    settings.write_text("\n".join([*lines, f"AGENTSDOCK_AGENT_PORT={port}"]) + "\n")
    home.run([home.bin / "systemctl", "--user", "start"])
    deadline = time.monotonic() + 30
    while not (home.state / "server.json").exists():
        assert time.monotonic() < deadline, (home.stub / "journal").read_text()
        time.sleep(0.02)
    yield home
    home.close()


def schema_of(home):
    with contextlib.closing(apsw.Connection(str(home.state / "agentsdock.db"))) as database:
        return database.pragma("user_version")


def answers(home):
    """What the running server says of itself, over the installed command's own settings."""
    import network

    settings = dict(
        line.partition("=")[::2]
        for line in (home.prefix / "settings.env").read_text().splitlines()
        if line.startswith("AGENTSDOCK")
    )
    address = network.Address("127.0.0.1", int(settings["AGENTSDOCK_AGENT_PORT"].strip("'")))
    return network.health(address, (home.state / "token").read_text().strip())


def version_of(release_id):
    return release_id.partition("-")[0]


def test_a_fresh_installation_serves_and_is_private(releases, tmp_path):
    home = Home(tmp_path / 'it\'s 50% of "$HOME" ümlaut', "pre fix", "st ate")
    try:
        ended = home.install(releases("1"), "--port", free_port(), "--show-token")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        token = (home.state / "token").read_text().strip()
        assert token in ended.stdout
        found = answers(home)
        assert found["server_version"] == "1.0.0"
        assert found["state_dir"] == str(home.state)
        assert found["auth_required"] is True
        modes = {p: p.stat().st_mode & 0o777 for p in (home.state / "token", home.state)}
        assert list(modes.values()) == [0o600, 0o700]
        assert ((home.prefix / "settings.env").stat().st_mode & 0o777) == 0o600
        command = home.root / ".local/bin/agentsdock"
        assert home.run([command, "token", "show"]).stdout.strip() == token
        assert home.run([command, "sessions"]).returncode == 0
        # A manager starts it with a bare PATH; it looks for CLIs where the shell did.
        pid = json.loads((home.state / "server.json").read_text())["pid"]
        with contextlib.suppress(FileNotFoundError):
            environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert f"PATH={home.environ['PATH']}".encode() in environ
        calls = (home.stub / "calls").read_text()
        assert "enable agentsdock.service" in calls
        # A second run finds everything as it should be and leaves the server alone.
        ended = home.install(releases("1"))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "it is there already" in ended.stdout
        assert answers(home)["server_instance_id"] == found["server_instance_id"]
        assert not list(releases("1").rglob("__pycache__"))
        gone = home.run(["sh", home.prefix / "current/uninstall.sh"])
        assert gone.returncode == 0, gone.stderr
        assert not home.prefix.exists()
        assert not command.is_symlink()
        assert (home.state / "agentsdock.db").exists()
        assert not (home.state / "server.json").exists()
    finally:
        home.close()


def test_an_update_that_migrates_and_the_way_back(first, releases):
    token = (first.state / "token").read_text()
    with open(first.prefix / "settings.env", "a") as settings:
        settings.write("AGENTSDOCK_LAUNCH_PACE='3'\n")
    ended = first.install(releases("2 migrating"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert answers(first)["server_version"] == "2.0.0"
    assert schema_of(first) == SCHEMA + 1
    assert (first.state / "token").read_text() == token
    assert "AGENTSDOCK_LAUNCH_PACE='3'" in (first.prefix / "settings.env").read_text()
    older = first.install(releases("1"))
    assert older.returncode == 1
    assert "older" in older.stderr
    back = ["sh", first.prefix / "current/install.sh", "--rollback"]
    refused = first.run(back)
    assert refused.returncode == 1
    assert "--with-snapshot" in refused.stderr
    assert answers(first)["server_version"] == "2.0.0"
    ended = first.run([*back, "--with-snapshot"])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert answers(first)["server_version"] == "1.0.0"
    assert schema_of(first) == SCHEMA


def test_a_release_that_cannot_be_imported_never_stops_the_old_one(first, releases):
    before = answers(first)["server_instance_id"]
    ended = first.install(releases("2 not importable"))
    assert ended.returncode == 1
    assert "agentsdock/chats/queue.py" in ended.stderr
    assert answers(first)["server_instance_id"] == before


def test_a_release_that_dies_after_its_migration_is_rolled_back_with_its_data(first, releases):
    settings = (first.prefix / "settings.env").read_text()
    ended = first.install(releases("2 dying"), "--port", free_port())
    assert (first.prefix / "settings.env").read_text() == settings
    assert ended.returncode == 1
    assert "ended instead of answering" in ended.stderr
    assert "1.0.0 is back and answers" in ended.stdout
    assert answers(first)["server_version"] == "1.0.0"
    assert schema_of(first) == SCHEMA
    (kept,) = first.state.glob("replaced-*")
    assert (kept / "agentsdock.db").exists()


def test_a_first_installation_that_fails_leaves_nothing_but_the_state(home, releases):
    home.bring(releases("2 dying"), SCHEMA + 1)
    ended = home.install(releases("2 dying"), "--port", free_port())
    assert ended.returncode == 1
    assert "nothing is installed" in ended.stdout
    assert home.current is None
    assert not (home.prefix / "settings.env").exists()
    assert not (home.root / ".config/systemd/user/agentsdock.service").exists()
    assert (home.state / "token").exists()


def test_one_that_was_killed_at_each_step_is_taken_up_again(first, releases):
    """The whole process group, as a closed terminal or a power cut would."""
    for path in (first.prefix / "releases").glob("2.0.0-*"):
        shutil.rmtree(path)
    for step in ("packages", "files", "check", "stop", "start", "health"):
        process = subprocess.Popen(
            first.command(releases("2 migrating")),
            env=first.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        with process.stdout:
            for line in process.stdout:
                if line.startswith(f"==> {step}"):
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            else:
                pytest.fail(f"there was no step {step}")
        process.wait()
        assert first.current is not None
        if step in ("packages", "files", "check"):
            assert answers(first)["server_version"] == "1.0.0"
    ended = first.install(releases("2 migrating"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert answers(first)["server_version"] == "2.0.0"
    assert version_of(os.readlink(first.prefix / "previous").partition("/")[2]) == "1.0.0"
    names = {path.name for path in (first.prefix / "releases").iterdir()}
    assert {version_of(name) for name in names} == {"1.0.0", "2.0.0"}


def test_one_that_is_told_to_stop_puts_the_old_release_back(first, releases):
    process = subprocess.Popen(
        first.command(releases("2 migrating")),
        env=first.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    for line in process.stdout:
        if line.startswith("==> health"):
            break
    os.killpg(process.pid, signal.SIGTERM)
    said, errors = process.communicate(timeout=120)
    if process.returncode:
        assert "1.0.0 is back and answers" in said
        assert "interrupted" in errors
        assert answers(first)["server_version"] == "1.0.0"
        assert not (first.prefix / "activation.json").exists()
    else:  # it was done already
        assert answers(first)["server_version"] == "2.0.0"


def test_one_whose_listener_has_gone_goes_on_to_the_end(first, releases):
    """As over an ssh connection that breaks."""
    process = subprocess.Popen(
        first.command(releases("2 migrating")),
        env=first.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 0
    assert answers(first)["server_version"] == "2.0.0"


def test_of_two_installers_at_once_one_does_it(first, releases):
    words = first.command(releases("2 migrating"))
    options = {"env": first.environ, "stdin": subprocess.DEVNULL, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(words, **options, **pipes) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    assert sorted(process.returncode for process in both) in ([0, 1], [0, 0])
    for process, (_, errors) in zip(both, said, strict=True):
        assert process.returncode == 0 or "another installer is at work" in errors
    assert answers(first)["server_version"] == "2.0.0"


def test_an_update_whose_port_is_taken_meanwhile_names_the_owner(first, releases):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = first.install(releases("2"), "--port", port)
    assert ended.returncode == 1
    assert f"port {port} is taken by process {os.getpid()}" in ended.stderr
    assert answers(first)["server_version"] == "1.0.0"


def test_a_full_disk_leaves_the_old_release_running(first, releases):
    """The size of files stands in for the disk: both fail in the middle of a write."""
    words = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *first.command(releases("2"))]
    ended = first.run(words)
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert answers(first)["server_version"] == "1.0.0"


def test_a_turn_cannot_update_the_server_that_runs_it(first, releases):
    ended = first.install(releases("2"), AGENTSDOCK_RUN_MARKER="server:run_1")
    assert ended.returncode == 1
    assert "a turn of an agent" in ended.stderr
    assert version_of(first.current) == "1.0.0"


def test_a_server_of_somebody_elses_making_is_not_fought(first, releases):
    first.close()
    process = subprocess.Popen([str(first.prefix / "bin/agentsdock"), "serve"], env=first.environ)
    try:
        deadline = time.monotonic() + 30
        while not (first.state / "server.json").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        ended = first.install(releases("2"))
        assert ended.returncode == 1
        assert f"process {process.pid} serves" in ended.stderr
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="a folder that nobody can write to")
@pytest.mark.parametrize("kind", ["read-only", "below a file"])
def test_where_nothing_can_be_written_the_place_is_named(home, checkout, kind):
    place = {"read-only": "/sys/agentsdock", "below a file": f"{home.stub}/calls/prefix"}[kind]
    words = ["sh", checkout / "install.sh", "--prefix", place, "--state-dir", home.state]
    ended = home.run(words)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"agentsdock: {place}")
    assert not home.state.exists()


def test_a_copy_that_is_damaged_or_for_another_python_is_not_used(home, checkout, monkeypatch):
    monkeypatch.setenv("HOME", str(home.root))
    monkeypatch.setattr(install, "SOURCE", checkout)
    installer = install.Installer(install.parser().parse_args([f"--prefix={home.prefix}"]))
    release = runtime_manifest.release_of(checkout)
    assert not installer._is_there(release)
    place = installer.prefix.release_dir(release.id)
    shutil.copytree(checkout, place)
    key = environments.key_of(checkout)
    prefix.Installed(release.id, release.version, 1, key).write(place)
    assert installer._is_there(release)
    prefix.Installed(release.id, release.version, 1, "other-py3.0").write(place)
    assert not installer._is_there(release)
    prefix.Installed(release.id, release.version, 1, key).write(place)
    (place / "agentsdock/app.py").write_text("")
    assert not installer._is_there(release)


def test_without_a_service_a_release_is_checked_and_left_to_its_user(first, releases):
    first.close()
    (first.stub / "no-bus").touch()
    before = sorted(first.prefix.rglob("*"))
    refused = first.install(releases("2 migrating"))
    assert refused.returncode == 1
    assert "loginctl enable-linger" in refused.stderr
    assert sorted(first.prefix.rglob("*")) == before
    ended = first.install(releases("2 dying"), "--no-service")
    assert ended.returncode == 1
    assert "1.0.0 is back and answers" in ended.stdout
    assert schema_of(first) == SCHEMA
    assert not (first.state / "server.json").exists()
    ended = first.install(releases("2 migrating"), "--no-service")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{first.prefix}/bin/agentsdock serve" in ended.stdout
    assert version_of(first.current) == "2.0.0"
    assert schema_of(first) == SCHEMA + 1
    assert not (first.state / "server.json").exists()
