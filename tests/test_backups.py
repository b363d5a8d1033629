"""What ``agentsdock backup`` takes, what ``restore`` gives back, and what both refuse."""

import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import apsw
import httpx
import pytest

from agentsdock import backups
from agentsdock.backups import BackupError
from agentsdock.store import copies, schema
from agentsdock.store.files import DATABASE
from agentsdock.store.protocol import StoreError, StoreInUse, StoreTooNew
from agentsdock.testing.server import running_server

SETTINGS = {"AGENTSDOCK_BACKEND": "cursor", "CURSOR_BIN": "/nonexistent/cursor-agent"}


@contextlib.contextmanager
def serving(state):
    with (
        running_server(state, SETTINGS) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client,
    ):
        yield client


def new_chat(client, title):
    answer = client.post("/api/sessions", json={"backend": "cursor", "title": title})
    return answer.json()["session"]["id"]


def upload(client, chat, name, content):
    url = f"/api/sessions/{chat}/files"
    answer = client.post(url, files={"file": (name, content)})
    assert answer.status_code == 200, answer.text
    return answer.json()["file"]["id"]


def titles(client):
    return {one["title"] for one in client.get("/api/sessions").json()["sessions"]}


def names(state):
    """The titles of the chats of a state without a server."""
    with contextlib.closing(apsw.Connection(str(state / DATABASE))) as database:
        bodies = database.execute("SELECT body FROM sessions").fetchall()
    return sorted(json.loads(body)["title"] for (body,) in bodies)


def rename_chats(state, old, new):
    with contextlib.closing(apsw.Connection(str(state / DATABASE))) as database:
        text = "replace(CAST(body AS TEXT), ?, ?)"
        database.execute(f"UPDATE sessions SET body = CAST({text} AS BLOB)", (old, new))


def content(client, file_id):
    return client.get(f"/api/files/{file_id}").content


def tree(folder):
    """Every file below and what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def agentsdock(*words):
    return subprocess.run(
        [sys.executable, "-m", "agentsdock", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A state folder with a chat and a file, its backup, and the ids."""
    folder = tmp_path_factory.mktemp("home")
    with serving(folder / "state") as client:
        chat = new_chat(client, "first")
        file_id = upload(client, chat, "näme.txt", b"contents")
        made = agentsdock("backup", folder / "backup", "--state-dir", folder / "state")
        assert made.returncode == 0, made.stderr
        refused = agentsdock("restore", folder / "backup", "--state-dir", folder / "state")
    return folder, chat, file_id, refused


@pytest.fixture
def backup(home, tmp_path):
    folder = tmp_path / "backup"
    subprocess.run(["cp", "-a", str(home[0] / "backup"), str(folder)], check=True)
    return folder


@pytest.fixture
def state(home, tmp_path):
    folder = tmp_path / "state"
    subprocess.run(["cp", "-a", str(home[0] / "state"), str(folder)], check=True)
    return folder


def test_a_backup_taken_from_a_running_server_serves_elsewhere(home, tmp_path):
    folder, _, file_id, _ = home
    assert backups.problems_of(folder / "backup") == []
    backups.restore(folder / "backup", tmp_path / "new home" / "state")
    with serving(tmp_path / "new home" / "state") as client:
        assert titles(client) == {"first"}
        assert content(client, file_id) == b"contents"


def test_a_running_server_is_not_restored_over(home):
    refused = home[3]
    assert refused.returncode == 1
    assert "another server" in refused.stderr


def test_a_backup_is_private_and_self_contained(backup):
    assert (backup.stat().st_mode & 0o777) == 0o700
    assert {p.stat().st_mode & 0o777 for p in backup.rglob("*") if p.is_file()} == {0o600}
    assert {p.name for p in backup.iterdir()} == {"manifest.json", DATABASE, "files"}
    assert "token" not in json.dumps(list(tree(backup)))


def test_restore_gives_back_the_old_state_and_keeps_the_new_one(home, state, backup):
    _, _, file_id, _ = home
    with serving(state) as client:
        chat = new_chat(client, "second")
        later = upload(client, chat, "later.txt", b"later")
    replaced = backups.restore(backup, state)
    assert (replaced.kept / DATABASE).exists()
    assert (replaced.kept / "files" / later / "later.txt").read_bytes() == b"later"
    with serving(state) as client:
        assert titles(client) == {"first"}
        assert content(client, file_id) == b"contents"
    assert "restoring" not in os.listdir(state)


def test_a_foreign_write_ahead_log_does_not_come_back(home, state, backup):
    database = apsw.Connection(str(state / DATABASE))
    database.pragma("journal_mode", "WAL")
    database.execute(
        "UPDATE sessions SET body = CAST(replace(CAST(body AS TEXT), 'first', 'other') AS BLOB)"
    )
    wal = (state / f"{DATABASE}-wal").read_bytes()
    database.close()
    (state / f"{DATABASE}-wal").write_bytes(wal)
    backups.restore(backup, state)
    assert not (state / f"{DATABASE}-wal").exists()
    assert names(state) == ["first"]


def test_a_damaged_state_can_be_restored_over(state, backup):
    (state / DATABASE).write_bytes(b"no database")
    (state / f"{DATABASE}-wal").write_bytes(b"nor a log")
    kept = backups.restore(backup, state).kept
    assert (kept / DATABASE).read_bytes() == b"no database"
    assert (kept / f"{DATABASE}-wal").read_bytes() == b"nor a log"
    assert backups.problems_of(state) == []


def test_a_file_that_is_damaged_in_the_state_is_put_right(home, state, backup):
    (path,) = (state / "files" / home[2]).iterdir()
    path.write_bytes(b"CONTENTS")
    backups.restore(backup, state)
    assert path.read_bytes() == b"contents"


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["database", "file", "missing", "manifest", "outside", "format"])
def test_a_damaged_backup_is_refused_and_changes_nothing(home, state, backup, damage):
    (path,) = (backup / "files" / home[2]).iterdir()
    manifest = backup / "manifest.json"
    if damage == "database":
        flip(backup / DATABASE, 5000)
    elif damage == "file":
        path.write_bytes(b"CONTENTS")
    elif damage == "missing":
        path.unlink()
    elif damage == "manifest":
        manifest.write_text("{")
    elif damage == "outside":
        manifest.write_text(manifest.read_text().replace("files/", "../files/"))
    else:
        manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    before = tree(state)
    with pytest.raises(BackupError):
        backups.restore(backup, state)
    assert tree(state) == before


def test_a_crash_at_any_step_of_a_restore_leaves_the_old_state_or_the_new(
    home, state, backup, tmp_path
):
    """The process is killed in place of each of its renames in turn."""
    rename_chats(state, "first", "second")
    program = """
import os, sys, pathlib
from agentsdock import backups
left = int(sys.argv[3])
def dying(real):
    def call(*words, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return real(*words, **options)
    return call
for name in ("rename", "replace", "link", "unlink", "fsync"):
    setattr(os, name, dying(getattr(os, name)))
backups.restore(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
"""
    seen = []
    for steps in range(20):
        trial = tmp_path / f"trial-{steps}"
        subprocess.run(["cp", "-a", str(state), str(trial)], check=True)
        ended = subprocess.run([sys.executable, "-c", program, backup, trial, str(steps)])
        seen += names(trial)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
        backups.restore(backup, trial)
        assert backups.problems_of(trial) == []
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {"second", "first"}


def test_everything_that_was_acknowledged_before_is_in_a_backup_under_load(state, tmp_path):
    with serving(state) as client:
        acknowledged, done = [], threading.Event()

        def write():
            with httpx.Client(base_url=client.base_url, trust_env=False, timeout=30) as writer:
                while not done.is_set():
                    acknowledged.append(new_chat(writer, "written meanwhile"))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for number in range(3):
                while len(acknowledged) < 10 * (number + 1):
                    thread.join(0.01)
                before = list(acknowledged)
                backups.back_up(state, tmp_path / str(number))
                database = apsw.Connection(str(tmp_path / str(number) / DATABASE))
                held = {row[0] for row in database.execute("SELECT id FROM sessions")}
                database.close()
                assert set(before) <= held
        finally:
            done.set()
            thread.join()


def test_a_backup_that_was_killed_is_not_taken_for_a_whole_one(state, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(backups, "_copy", killed)
    with pytest.raises(KeyboardInterrupt):
        backups.back_up(state, tmp_path / "out")
    monkeypatch.undo()
    (tmp_path / "out.partial").mkdir()  # as a kill would leave it
    assert not (tmp_path / "out").exists()
    backups.back_up(state, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["out", "state"]


def test_an_existing_folder_is_not_overwritten(state, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(BackupError, match="there already"):
        backups.back_up(state, tmp_path / "out")


def test_a_file_that_is_gone_is_named_and_does_not_stop_a_backup(home, state, tmp_path):
    (path,) = (state / "files" / home[2]).iterdir()
    path.unlink()
    assert backups.problems_of(state) == [f"files/{home[2]}/{path.name}: No such file or directory"]
    assert backups.back_up(state, tmp_path / "out").absent == [home[2]]
    assert backups.problems_of(tmp_path / "out") == []


def test_the_work_of_a_newer_release_is_refused_untouched(state, tmp_path):
    database = apsw.Connection(str(state / DATABASE))
    database.pragma("user_version", len(schema.MIGRATIONS) + 1)
    database.pragma("journal_mode", "DELETE")
    database.close()
    before = tree(state)
    with pytest.raises(StoreTooNew):
        backups.back_up(state, tmp_path / "out")
    for words in (["verify"], ["backup", tmp_path / "out"], ["serve", "--port", "0"]):
        ended = agentsdock(*words, "--state-dir", state)
        assert ended.returncode == 3, words
        assert f"version {len(schema.MIGRATIONS) + 1}" in ended.stderr
        assert DATABASE in ended.stderr
    assert {k: v for k, v in tree(state).items() if "lock" not in k} == {
        k: v for k, v in before.items() if "lock" not in k
    }


def test_a_snapshot_can_be_restored_over_the_database_of_a_newer_release(state, tmp_path):
    snapshot = tmp_path / "schema.db"
    copies.copy_database(state, snapshot)
    database = apsw.Connection(str(state / DATABASE))
    database.execute("CREATE TABLE newer (x)")
    database.pragma("user_version", len(schema.MIGRATIONS) + 1)
    database.close()
    backups.restore(snapshot, state)
    assert backups.problems_of(state) == []
    assert names(state) == ["first"]


@pytest.mark.parametrize("state_name", ["nothing", "a file"])
def test_there_must_be_a_state_to_back_up(tmp_path, state_name):
    place = tmp_path / "state"
    if state_name == "a file":
        place.write_text("")
    with pytest.raises(StoreError):
        backups.back_up(place, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()


def test_a_lock_that_is_held_refuses_a_restore(state, backup):
    before = tree(state)
    with copies.without_server(state), pytest.raises(StoreInUse):
        backups.restore(pathlib.Path(backup), state)
    assert set(tree(state)) == set(before)
