"""The authority of a turn: one run's, in a file of its own, gone with it."""

import json
import stat

import pytest

from agentsdock.chats.authority import Authorities
from agentsdock.model.errors import Forbidden


@pytest.fixture
def authorities(tmp_path):
    found = Authorities(tmp_path / "state" / "authority", "server")
    found.secure()
    return found


def test_a_secret_counts_from_its_grant_to_its_revocation(authorities):
    grant = authorities.prepare("sess_1", "run_1", "full")
    with pytest.raises(Forbidden):
        authorities.holder(grant.secret)
    authorities.grant(grant)
    holder = authorities.holder(grant.secret)
    assert (holder.session_id, holder.run_id) == ("sess_1", "run_1")
    assert json.loads(grant.path.read_text())["capability"] == grant.secret
    assert stat.S_IMODE(grant.path.stat().st_mode) == 0o600
    assert grant.secret not in repr(authorities)
    for secret in (None, "", grant.secret[:-1], grant.secret + "x"):
        with pytest.raises(Forbidden):
            authorities.holder(secret)
    authorities.revoke("run_1")
    authorities.revoke("run_1")
    with pytest.raises(Forbidden):
        authorities.holder(grant.secret)
    assert not grant.path.exists()


def test_a_start_removes_files_and_follows_no_link(tmp_path, authorities):
    folder = authorities.folder
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "precious").write_text("x")
    (folder / "old.json").write_text("{}")
    (folder / "link").symlink_to(elsewhere / "precious")
    (folder / "sub").mkdir()
    folder.chmod(0o777)
    authorities.purge()
    assert [path.name for path in folder.iterdir()] == ["sub"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (elsewhere / "precious").exists()
    (folder / "sub").rmdir()
    folder.rmdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"directory|symbolic"):
        authorities.purge()
    assert (elsewhere / "precious").exists()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


def test_whatever_lies_where_the_file_was_the_secret_counts_no_more(authorities):
    grant = authorities.prepare("sess_1", "run_1", "full")
    authorities.grant(grant)
    grant.path.unlink()
    grant.path.mkdir()
    authorities.revoke("run_1")
    with pytest.raises(Forbidden):
        authorities.holder(grant.secret)


def test_a_grant_that_cannot_be_written_is_none(authorities):
    grant = authorities.prepare("sess_1", "run_1", "full")
    grant.path.mkdir()
    with pytest.raises(OSError, match="exists"):
        authorities.grant(grant)
    with pytest.raises(Forbidden):
        authorities.holder(grant.secret)
