"""Archive, checkout and deploy over ssh install the very same files."""

import contextlib
import getpass
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
import time

import package_release
import pytest
import runtime_manifest
from homes import Home, make_checkout
from test_installing import answers, free_port

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
NO_SSHD = None if os.path.exists(SSHD) and shutil.which("ssh-keygen") else "sshd is not installed"


def files_of(home):
    """Every runtime file of the active release and what is in it."""
    release = home.prefix / "current"
    found = runtime_manifest._present(release) | {"MANIFEST", "VERSION"}
    return {path: hashlib.sha256((release / path).read_bytes()).hexdigest() for path in found}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """An ssh configuration whose host "there" is a server on the loopback, and its home."""
    if NO_SSHD:
        pytest.skip(NO_SSHD)
    folder = tmp_path_factory.mktemp("ssh")
    folder.chmod(0o700)
    home = Home(tmp_path_factory.mktemp("there") / "home of 'there'")
    port = free_port()
    for name in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    # The home over there is told by the server: one account serves all tests.
    environ = {k: home.environ[k] for k in ("HOME", "STUB", "PATH", "PYTHON", "TMPDIR")}
    told = " ".join(f'"{name}={value}"' for name, value in environ.items())
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPermitRootLogin yes\n"
        f"PasswordAuthentication no\nSetEnv {told}\n"
    )
    (folder / "config").write_text(
        f"Host there\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking accept-new\n"
    )
    if os.geteuid() == 0:
        pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with open(folder / "log", "wb") as log:
        words = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and server.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield home, folder / "config"
    finally:
        server.terminate()
        server.wait()
        home.close()


def deploy(tree, host, *options):
    home, config = host
    words = ["sh", str(tree / "deploy.sh"), "--ssh-config", str(config), "there"]
    words += ["--prefix", str(home.prefix), "--state-dir", str(home.state), *options]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def test_all_three_transports_install_the_same_release(checkout, host, tmp_path):
    archive = package_release.build(checkout, tmp_path / "out", None)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    direct, packed = Home(tmp_path / "direct"), Home(tmp_path / "packed")
    with contextlib.ExitStack() as stack:
        for home in (direct, packed):
            stack.callback(home.close)
        done = [
            direct.install(checkout, "--no-service", "--port", free_port()),
            packed.install(
                checkout,
                "--no-service",
                f"--port={free_port()}",
                f"--archive={archive}",
                f"--sha256={digest}",
            ),
            deploy(checkout, host, "--port", str(free_port())),
        ]
        assert [one.returncode for one in done] == [0, 0, 0], [one.stderr for one in done]
        there = host[0]
        assert files_of(direct) == files_of(packed) == files_of(there)
        assert direct.current == packed.current == there.current
        names = set(files_of(direct))
        assert {"agentsdock/guard/process_guard.py", "agentsdock/py.typed"} <= names
        assert answers(there)["state_dir"] == str(there.state)
        assert not list(there.root.glob("agentsdock-deploy.*"))


@pytest.mark.parametrize("how", ["missing", "altered", "extra"])
def test_a_tree_that_differs_is_not_deployed(checkout, host, tmp_path, how):
    tree = tmp_path / "tree"
    shutil.copytree(checkout, tree)
    place = tree / "agentsdock/guard/process_guard.py"
    if how == "missing":
        place.unlink()
    elif how == "altered":
        place.write_text("")
    else:
        place.with_name("stowaway.py").write_text("")
    name = "stowaway" if how == "extra" else "process_guard"
    before = host[0].current
    ended = deploy(tree, host)
    assert ended.returncode == 1
    assert f"{how} file: agentsdock/guard/{name}.py" in ended.stderr
    assert host[0].current == before


def test_a_broken_release_is_rolled_back_over_there(checkout, host, tmp_path):
    ended = deploy(checkout, host, "--port", str(free_port()))
    assert ended.returncode == 0, ended.stderr
    before = answers(host[0])["server_version"]
    dying = "\nimport os, sys\nif 'serve' in sys.argv:\n    os._exit(9)\n"
    edits = [("agentsdock/web/app.py", lambda text: text + dying)]
    broken = make_checkout(tmp_path / "broken", "9.0.0", edits)
    ended = deploy(broken, host)
    assert ended.returncode == 1
    assert "is back and answers" in ended.stdout
    assert answers(host[0])["server_version"] == before


def test_a_host_that_does_not_answer_is_an_error(checkout, host, tmp_path):
    config = tmp_path / "config"
    config.write_text(f"Host there\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    assert deploy(checkout, (host[0], config)).returncode != 0
