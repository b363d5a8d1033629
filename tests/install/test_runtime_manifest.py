"""What a release consists of: nothing missing, nothing more, nothing changed."""

import os
import shutil
import subprocess

import package_release
import prefix
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from homes import GIT, ROOT
from runtime_manifest import SourceError, release_of, require


@pytest.fixture
def tree(checkout, tmp_path):
    shutil.copytree(checkout, tmp_path / "tree")
    return tmp_path / "tree"


@pytest.fixture
def unpacked(tree, tmp_path):
    """The same release without its checkout."""
    release = release_of(tree)
    (tree / "MANIFEST").write_text(release.text)
    shutil.rmtree(tree / ".git")
    return tree


def spoil(tree, how):
    place = tree / "agentsdock/backends/cursor_agent_client.py"
    if how == "missing":
        place.unlink()
    elif how == "altered":
        place.write_text(place.read_text() + "\n")
    elif how == "extra":
        place.with_name("stowaway.py").write_text("")
    elif how == "link":
        place.rename(tree / "elsewhere.py")
        place.symlink_to(tree / "elsewhere.py")
    elif how == "linked folder":
        (tree / "agentsdock/stowaway").symlink_to(tree)
    return {
        "missing": "missing file: agentsdock/backends/cursor_agent_client.py",
        "altered": "altered file: agentsdock/backends/cursor_agent_client.py",
        "extra": "extra file: agentsdock/backends/stowaway.py",
        "link": "not a regular file: agentsdock/backends/cursor_agent_client.py",
        "linked folder": "extra file: agentsdock/stowaway",
    }[how]


@pytest.mark.parametrize("how", ["missing", "altered", "extra", "link", "linked folder"])
@pytest.mark.parametrize("kind", ["checkout", "unpacked"])
def test_each_difference_is_named(tree, how, kind, request):
    if kind == "unpacked":
        request.getfixturevalue("unpacked")
    require(tree, release_of(tree))
    named = spoil(tree, how)
    with pytest.raises(SourceError) as caught:
        require(tree, release_of(tree))
    assert str(caught.value).splitlines()[1:] == [f"  {named}"]


@pytest.mark.parametrize("how", ["missing", "altered", "extra"])
def test_the_installer_refuses_a_tree_that_differs(unpacked, how):
    named = spoil(unpacked, how)
    tree = unpacked
    ended = subprocess.run(
        ["sh", str(tree / "install.sh"), "--dry-run"], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert named in ended.stderr


def test_what_python_made_is_no_difference(tree):
    cache = tree / "agentsdock/__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "app.cpython-311.pyc").write_bytes(b"")
    require(tree, release_of(tree))


def test_the_manifest_has_every_module_of_the_package_and_what_installs_it(tree):
    paths = set(release_of(tree).digests)
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "agentsdock").rglob("*.py")}
    assert modules <= paths
    assert {"agentsdock/guard/process_guard.py", "install.sh", "requirements.lock"} <= paths
    assert not any(path.startswith(("tests/", "docs/", ".")) for path in paths)


def test_a_tree_within_another_repository_is_not_taken_for_it(tree, tmp_path):
    inner = tree / "agentsdock/inner"
    shutil.copytree(ROOT / "packaging", inner / "packaging")
    with pytest.raises(SourceError, match="not a checkout of its own"):
        release_of(inner)


def test_a_commit_without_a_needed_file_is_refused_with_its_name(tree):
    subprocess.run([*GIT, "-C", str(tree), "rm", "-q", "uninstall.sh"], check=True)
    subprocess.run([*GIT, "-C", str(tree), "commit", "-qm", "y"], check=True)
    with pytest.raises(SourceError, match=r"lacks uninstall\.sh"):
        release_of(tree)


@pytest.mark.parametrize("line", ["x", f"{'0' * 64}  /etc/passwd", f"{'0' * 64}  agentsdock/../x"])
def test_a_manifest_with_a_foreign_line_is_refused(unpacked, line):
    with open(unpacked / "MANIFEST", "a") as file:
        file.write(line + "\n")
    with pytest.raises(SourceError, match="none of a manifest"):
        release_of(unpacked)


def test_a_manifest_that_leaves_a_needed_file_out_is_refused(unpacked):
    lines = (unpacked / "MANIFEST").read_text().splitlines(keepends=True)
    (unpacked / "MANIFEST").write_text("".join(x for x in lines if "install.sh" not in x))
    with pytest.raises(SourceError, match=r"install\.sh"):
        release_of(unpacked)


def test_the_same_commit_gives_the_same_bytes(tree, tmp_path):
    first = package_release.build(tree, tmp_path / "one", None)
    for path in tree.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    again = package_release.build(tree, tmp_path / "two", None)
    assert first.read_bytes() == again.read_bytes()
    sums = first.with_name(f"{first.name}.sha256")
    subprocess.run(["sha256sum", "-c", sums.name], cwd=sums.parent, check=True, capture_output=True)


def test_a_tree_that_differs_from_its_commit_is_not_packed(tree, tmp_path):
    named = spoil(tree, "altered")
    with pytest.raises(SourceError, match=named):
        package_release.build(tree, tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


def test_a_release_is_signed_by_the_key_that_is_given(tree, tmp_path):
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "key.pem").write_bytes(pem)
    archive = package_release.build(tree, tmp_path / "out", tmp_path / "key.pem")
    signature = archive.with_name(f"{archive.name}.sig").read_bytes()
    key.public_key().verify(signature, archive.read_bytes())
    package_release.build(tree, tmp_path / "out", None)
    assert not archive.with_name(f"{archive.name}.sig").exists()


def test_versions_are_in_order():
    ordered = [
        "0.0.9",
        "0.1.0.dev0",
        "0.1.0.dev1",
        "0.1.0a1",
        "0.1.0b1",
        "0.1.0rc1",
        "0.1.0",
        "0.1.1",
    ]
    ordered += ["0.9.0", "0.10.0", "1.0"]
    assert sorted(set(ordered), key=prefix.order) == ordered
    with pytest.raises(ValueError, match="no version"):
        prefix.order("newest")
