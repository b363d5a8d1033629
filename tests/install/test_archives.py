"""An archive is believed before it is opened, and nothing outside it is touched."""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile

import package_release
import pytest
from homes import ROOT, Home


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "foreign"):
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(private)]
        subprocess.run(make, check=True, capture_output=True)
        show = ["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)]
        subprocess.run(show, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def archive(checkout, keys, tmp_path_factory):
    out = tmp_path_factory.mktemp("out put")
    return package_release.build(checkout, out, keys / "ours.pem")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("shared"))


def dry_run(home, checkout, *options):
    """Verifies and unpacks like an installation, then says what it would do."""
    before = sorted(home.root.rglob("*"))
    ended = home.install(checkout, "--dry-run", *options)
    assert sorted(home.root.rglob("*")) == before
    return ended


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_signed_archive_is_taken(shared, checkout, archive, keys):
    ended = dry_run(shared, checkout, "--archive", archive, "--public-key", keys / "ours.pub")
    assert ended.returncode == 0, ended.stderr
    assert "nothing was changed" in ended.stdout


def test_an_archive_of_a_known_hash_is_taken(shared, checkout, archive):
    ended = dry_run(shared, checkout, f"--archive={archive}", f"--sha256={sha256(archive)}")
    assert ended.returncode == 0, ended.stderr


def refused(ended, reason):
    assert ended.returncode == 1
    assert reason in ended.stderr
    assert "unpack" not in ended.stdout


def test_an_archive_that_nothing_speaks_for_is_refused(shared, checkout, archive):
    refused(dry_run(shared, checkout, "--archive", archive), "say what to trust")


def test_a_wrong_hash_is_refused(shared, checkout, archive):
    refused(
        dry_run(shared, checkout, "--archive", archive, "--sha256", "0" * 64), "has the SHA-256"
    )


def test_a_foreign_signature_is_refused_even_with_the_right_hash(shared, checkout, archive, keys):
    options = ["--public-key", keys / "foreign.pub", "--sha256", sha256(archive)]
    refused(dry_run(shared, checkout, "--archive", archive, *options), "signature")


def test_an_altered_archive_is_refused(shared, checkout, archive, keys, tmp_path):
    altered = tmp_path / archive.name
    data = bytearray(archive.read_bytes())
    data[-1] ^= 1
    altered.write_bytes(data)
    options = ["--archive", altered, "--public-key", keys / "ours.pub"]
    refused(dry_run(shared, checkout, *options), f"{archive.name}.sig is missing")
    os.link(f"{archive}.sig", f"{altered}.sig")
    refused(dry_run(shared, checkout, *options), "signature")


def test_the_key_of_the_first_installation_is_kept_to(checkout, archive, keys, tmp_path):
    home = Home(tmp_path / "home")
    (home.prefix / "release-key.pem").write_bytes((keys / "foreign.pub").read_bytes())
    refused(dry_run(home, checkout, "--archive", archive, "--sha256", sha256(archive)), "signature")
    options = ["--archive", archive, "--public-key", keys / "ours.pub"]
    refused(dry_run(home, checkout, *options), "is not the key of this installation")


def test_a_download_is_verified_too(shared, checkout, archive, keys):
    url = archive.as_uri()
    ended = dry_run(shared, checkout, "--url", url, "--public-key", keys / "ours.pub")
    assert ended.returncode == 0, ended.stderr
    refused(
        dry_run(shared, checkout, "--url", url, "--public-key", keys / "foreign.pub"), "signature"
    )
    ended = dry_run(shared, checkout, "--url", f"{url}.nothing", "--sha256", "0" * 64)
    refused(ended, "could not be downloaded")


def hostile(name, kind=tarfile.REGTYPE, target=""):
    def add(packed):
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        packed.addfile(member, io.BytesIO(b""))

    return add


@pytest.mark.parametrize(
    "add",
    [
        hostile("/tmp/agentsdock-absolute"),
        hostile("agentsdock-0/../../outside"),
        hostile("../outside"),
        hostile("second-top/file"),
        hostile("file-at-the-top"),
        hostile("agentsdock-0/link", tarfile.SYMTYPE, "/etc/passwd"),
        hostile("agentsdock-0/hard", tarfile.LNKTYPE, "agentsdock-0/a"),
        hostile("agentsdock-0/fifo", tarfile.FIFOTYPE),
        hostile("agentsdock-0/device", tarfile.CHRTYPE),
        hostile("agentsdock-0/a"),
        hostile("agentsdock-0/a/below-a-file"),
    ],
)
def test_a_hostile_member_is_refused_and_nothing_outside_is_written(tmp_path, monkeypatch, add):
    bad = hostile_archive(tmp_path, add)
    target = tmp_path / "inner/tree"
    monkeypatch.setattr("sys.argv", ["-", str(bad), str(target)])
    _, _, after = (ROOT / "install.sh").read_text().partition("<<'PROGRAM'")
    program = after.partition("\n")[2].partition("\nPROGRAM\n")[0]
    with pytest.raises(SystemExit) as refused:
        exec(compile(program, "unpack", "exec"), {})
    assert isinstance(refused.value.code, str)
    assert not os.path.exists("/tmp/agentsdock-absolute")
    assert {path.name for path in tmp_path.iterdir()} <= {"bad.tar.gz", "inner"}
    assert not list(tmp_path.rglob("outside"))


def hostile_archive(folder, add):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as packed:
        hostile("agentsdock-0/a")(packed)
        add(packed)
    bad = folder / "bad.tar.gz"
    bad.write_bytes(gzip.compress(out.getvalue()))
    return bad


def test_the_installer_says_what_is_wrong_with_a_hostile_archive(shared, checkout, tmp_path):
    bad = hostile_archive(tmp_path, hostile("agentsdock-0/link", tarfile.SYMTYPE, "/etc/passwd"))
    ended = dry_run(shared, checkout, "--archive", bad, "--sha256", sha256(bad))
    assert ended.returncode == 1
    assert "not a regular file: agentsdock-0/link" in ended.stderr
    assert "is not unpacked" in ended.stderr


@pytest.mark.parametrize("cut", [20, 5000])
def test_half_an_archive_is_refused(shared, checkout, archive, tmp_path, cut):
    half = tmp_path / "half.tar.gz"
    half.write_bytes(archive.read_bytes()[:cut])
    ended = dry_run(shared, checkout, "--archive", half, "--sha256", sha256(half))
    assert ended.returncode == 1
    assert "not a whole archive" in ended.stderr


def test_an_archive_whose_file_is_not_that_of_the_manifest_is_refused(
    shared, checkout, archive, tmp_path
):
    out = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=out, mode="w") as new:
        for member in old:
            data = old.extractfile(member).read()
            if member.name.endswith("agentsdock/app.py"):
                data += b"\n"
                member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    bad = tmp_path / "bad.tar.gz"
    bad.write_bytes(gzip.compress(out.getvalue()))
    ended = dry_run(shared, checkout, "--archive", bad, "--sha256", sha256(bad))
    assert ended.returncode == 1
    assert "altered file: agentsdock/app.py" in ended.stderr


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ("python3", "Python 3.11 or newer is missing"),
        ("openssl", "openssl is missing"),
        ("curl", "curl is missing"),
        ("systemctl", "use --no-service"),
        ("git", "git is missing"),
    ],
)
def test_a_missing_tool_is_named_with_what_helps(
    shared, checkout, archive, keys, tmp_path, absent, said
):
    tools = ["cat", "cmp", "dirname", "git", "mktemp", "openssl", "python3", "rm", "sh", "sleep"]
    tools.append("apt-get")
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in {*tools, "curl"} - {absent}:
        found = subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip()
        (folder / tool).symlink_to(found or "/bin/true")
    if absent != "systemctl":
        (folder / "systemctl").symlink_to(shared.bin / "systemctl")
    options = ["--archive", archive, "--public-key", keys / "ours.pub"]
    if absent == "curl":
        options[:2] = ["--url", archive.as_uri()]
    elif absent == "git":
        options = []
    words = shared.command(checkout, "--dry-run", *options)
    words[0] = str(folder / "sh")
    environ = {} if absent == "python3" else {"PYTHON": shared.environ["PYTHON"]}
    environ.setdefault("PYTHON", "")
    ended = shared.run(words, PATH=str(folder), **environ)
    assert ended.returncode == 1
    assert said in ended.stderr
    if absent != "systemctl":
        assert "sudo apt-get install" in ended.stderr
