"""The wheel and the sdist hold the same program, and installing one gives a working command."""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import environments
import prefix
import pytest
import runtime_manifest
from homes import ROOT, Home, make_checkout
from test_installing import answers, free_port

from agentsdock.testing.server import running_server

INDEX_SECONDS = 30


@pytest.fixture(scope="module")
def dist(checkout, tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    subprocess.run(words, cwd=checkout, check=True, capture_output=True)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def index():
    """Skips where packages cannot be had."""
    line = next(x for x in (ROOT / "requirements.lock").read_text().splitlines() if "sniffio" in x)
    words = [
        shutil.which("uv") or f"{sysconfig.get_path('scripts')}/uv",
        "pip",
        "compile",
        "-q",
        "-",
    ]
    try:
        subprocess.run(
            words,
            input=line.split()[0],
            text=True,
            check=True,
            capture_output=True,
            timeout=INDEX_SECONDS,
        )
    except (subprocess.SubprocessError, OSError):
        pytest.skip("no package index can be reached")
    return words[0]


def test_the_wheel_holds_the_package_of_the_manifest(dist, checkout):
    with zipfile.ZipFile(dist[0]) as wheel:
        held = {name for name in wheel.namelist() if name.startswith("agentsdock/")}
        points = next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))
        assert "agentsdock = agentsdock.cli.main:main" in wheel.read(points).decode()
    runtime = runtime_manifest.release_of(checkout).digests
    assert held == {path for path in runtime if path.startswith("agentsdock/")}


def test_the_sdist_can_be_installed_from_and_packed_again(dist, checkout):
    with tarfile.open(dist[1]) as sdist:
        held = {member.name.partition("/")[2] for member in sdist}
    assert set(runtime_manifest.release_of(checkout).digests) <= held


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_all_of_it_can_be_imported(dist, tmp_path, kind):
    if kind == "wheel":
        shutil.unpack_archive(dist[0], tmp_path, "zip")
    else:
        shutil.unpack_archive(dist[1], tmp_path, "gztar", filter="data")
    root = tmp_path if kind == "wheel" else next(tmp_path.glob("agentsdock-*"))
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    site = environments._site(tmp_path / "venv")
    (site / "all.pth").write_text(f"{root}\n{sysconfig.get_path('purelib')}\n")
    words = [
        str(tmp_path / "venv/bin/python"),
        "-P",
        "-B",
        str(ROOT / "packaging/check_release.py"),
    ]
    ended = subprocess.run([*words, str(root)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_uv_tool_install_gives_a_working_server(dist, index, tmp_path):
    """pipx does the same: an environment of its own, and the commands linked to."""
    home = Home(tmp_path / "home")
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    words = [index, "tool", "install", "--quiet", "--python", sys.executable, str(dist[0])]
    ended = subprocess.run(
        words,
        env={**home.environ, "HOME": str(tmp_path), **folders},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    with running_server(tmp_path / "state", program=[str(tmp_path / "bin/agentsdock")]) as server:
        assert server.url


def test_the_locked_packages_are_installed_by_hash(index, tmp_path):
    """Without the seeded packages of the other tests: with pip, as at a user's."""
    home = Home(tmp_path / "home")
    shutil.rmtree(home.prefix)
    checkout = make_checkout(tmp_path / "source")
    try:
        ended = home.install(checkout, "--port", free_port(), PYTHONDONTWRITEBYTECODE="1")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        packages = home.prefix / "environments" / environments.key_of(checkout)
        # The server imports it not, so only the installation could have compiled it.
        assert list(packages.rglob("site-packages/rich/console.py"))
        assert not list(packages.rglob("site-packages/rich/__pycache__/*"))
        assert answers(home)["state_dir"] == str(home.state)
    finally:
        home.close()


def test_packages_are_installed_by_hash_or_not_at_all(tmp_path, monkeypatch):
    home = prefix.Prefix(tmp_path)
    home.prepare()
    asked = []

    def refusing(words, log):
        asked.extend(words)
        raise prefix.InstallError("the hashes differ")

    monkeypatch.setattr(environments, "_bounded", refusing)
    monkeypatch.setattr(environments.venv, "create", lambda place, **_: place.mkdir())
    with pytest.raises(prefix.InstallError):
        environments.provide(home, ROOT)
    assert "--require-hashes" in asked
    assert asked[-2:] == ["-r", str(ROOT / "requirements.lock")]
    assert not (home.environment_dir(environments.key_of(ROOT))).exists()


def test_what_pip_said_is_told_and_it_has_an_end(tmp_path, monkeypatch):
    complaining = [sys.executable, "-c", "import sys; sys.exit('no such package')"]
    with pytest.raises(prefix.InstallError, match="no such package"):
        environments._bounded(complaining, tmp_path / "log")
    monkeypatch.setattr(environments, "PIP_SECONDS", 0)
    with pytest.raises(prefix.InstallError, match="within 0 s"):
        environments._bounded(["sleep", "60"], tmp_path / "log")
