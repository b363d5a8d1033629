"""The authority of a turn: one run's, in a file of its own, gone with it."""

import json
import stat

import pytest

from agentsdock.chats.authority import Action, Authorities
from agentsdock.model.errors import Forbidden
from agentsdock.model.sessions import PROVIDER_JOBS_ACCESS

EVERYTHING = frozenset(Action)


@pytest.fixture
def authorities(tmp_path):
    found = Authorities(
        tmp_path / "state" / "authority", "server", served=EVERYTHING, authenticated=True
    )
    found.secure()
    return found


def granted(authorities, session_id="sess_1", run_id="run_1", access="full"):
    """A grant in force, and its secret as the CLI finds it."""
    grant = authorities.prepare(session_id, run_id, access)
    authorities.grant(grant)
    return grant, json.loads(grant.path.read_text())["capability"]


def refused(authorities, secret, session_id="sess_1", action=Action.PUBLISH):
    with pytest.raises(Forbidden):
        authorities.authorize(secret, session_id, action)
    return True


def test_a_secret_counts_from_its_grant_to_its_revocation(authorities):
    grant, secret = granted(authorities)
    assert authorities.authorize(secret, "sess_1", Action.PUBLISH) is grant
    assert (grant.session_id, grant.run_id) == ("sess_1", "run_1")
    assert stat.S_IMODE(grant.path.stat().st_mode) == 0o600
    for other in (None, "", secret[:-1], secret + "x"):
        assert refused(authorities, other)
    assert authorities.is_live("run_1")
    authorities.revoke("run_1")
    authorities.revoke("run_1")
    assert not authorities.is_live("run_1")
    assert refused(authorities, secret)
    assert not grant.path.exists()


def test_the_server_keeps_no_secret(authorities):
    grant, secret = granted(authorities)
    kept = [authorities.folder, grant, *authorities._held, *authorities._held.values()]
    assert secret not in repr(kept)


def test_a_secret_is_of_one_chat_and_ends_with_its_own_run_only(authorities):
    _, first = granted(authorities)
    other, second = granted(authorities, "sess_2", "run_2")
    assert refused(authorities, first, "sess_2")
    assert refused(authorities, second, "sess_1")
    authorities.revoke("run_1")
    assert authorities.authorize(second, "sess_2", Action.PUBLISH) is other


def test_a_restarted_server_knows_no_secret_of_before(authorities):
    grant, secret = granted(authorities)
    content = grant.path.read_text()
    again = Authorities(authorities.folder, "server", served=EVERYTHING, authenticated=True)
    again.purge()
    assert not grant.path.exists()
    grant.path.write_text(content)
    assert refused(again, secret)


@pytest.mark.parametrize(
    ("authenticated", "access", "actions"),
    [
        (True, "full", {Action.PUBLISH, Action.JOBS}),
        (True, "read_only", {Action.PUBLISH, Action.JOBS}),
        (True, "blocked", {Action.PUBLISH}),
        (False, "full", {Action.PUBLISH}),
    ],
)
def test_what_is_granted(tmp_path, authenticated, access, actions):
    found = Authorities(tmp_path / "a", "server", EVERYTHING, authenticated)
    found.secure()
    _, secret = granted(found, access=access)
    for action in Action:
        if action in actions:
            found.authorize(secret, "sess_1", action)
        else:
            assert refused(found, secret, action=action)


def test_no_action_without_routes_is_granted(tmp_path):
    found = Authorities(tmp_path / "a", "server", authenticated=True)
    found.secure()
    _, secret = granted(found)
    assert refused(found, secret, action=Action.JOBS)


@pytest.mark.parametrize("issued", PROVIDER_JOBS_ACCESS)
@pytest.mark.parametrize("now", PROVIDER_JOBS_ACCESS)
def test_tighter_access_counts_at_once_and_looser_from_the_next_turn_on(authorities, issued, now):
    grant = authorities.prepare("sess_1", "run_1", issued)
    for change, enough in ((False, {"full", "read_only"}), (True, {"full"})):
        if {issued, now} <= enough:
            grant.require_jobs(now, change=change)
        else:
            with pytest.raises(Forbidden):
                grant.require_jobs(now, change=change)


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
    grant, secret = granted(authorities)
    grant.path.unlink()
    grant.path.mkdir()
    authorities.revoke("run_1")
    assert refused(authorities, secret)


def test_a_grant_that_cannot_be_written_is_none(authorities):
    grant = authorities.prepare("sess_1", "run_1", "full")
    grant.path.mkdir()
    with pytest.raises(OSError, match="exists"):
        authorities.grant(grant)
    assert not authorities.is_live("run_1")
