"""The helper programs of agents, against a server that answers as a test says."""

import http.server
import io
import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from agentsdock.cli import agent_chats, agent_jobs, agent_request

SECRET = "a-secret-of-a-turn"


class Scripted(http.server.BaseHTTPRequestHandler):
    def _answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        secret = self.headers.get("X-AgentsDock-Provider-Capability")
        self.server.asked.append((self.command, self.path, body, secret))
        status, headers, text = self.server.reply
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def listening():
    with http.server.HTTPServer(("127.0.0.1", 0), Scripted) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server(listening, monkeypatch):
    listening.asked = []
    listening.reply = (200, {}, b"{}")
    monkeypatch.setenv("AGENTSDOCK_SERVER_URL", f"http://127.0.0.1:{listening.server_port}")
    return listening


@pytest.fixture
def authority(tmp_path):
    path = tmp_path / "authority.json"
    content = {
        "source_session_id": "sess_1",
        "source_run_id": "run_1",
        "provider_capability": SECRET,
    }
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


@pytest.fixture
def run(server, authority, monkeypatch, capsys):
    """Run a helper; its status, what it printed, and its complaint."""

    def ran(program, *args, answer=None, file=authority):
        if answer is not None:
            server.reply = (200, {}, json.dumps(answer).encode())
        monkeypatch.setattr(sys, "argv", ["helper", "--authority-file", str(file), *args])
        try:
            status = program.main()
        except SystemExit as left:
            status = left.code
        out, err = capsys.readouterr()
        return status, json.loads(out) if out else None, err

    return ran


JOB = {"id": "job_1", "session_id": "sess_1"}
JOBS = "/api/agent/sessions/sess_1/jobs"


@pytest.mark.parametrize(
    ("args", "asked", "answer", "wrong"),
    [
        (["list"], ("GET", JOBS, None), {"jobs": [JOB]}, {"job": JOB}),
        (["get", "job_1"], ("GET", JOBS, None), {"jobs": [JOB]}, {"jobs": [{"id": "job_2"}]}),
        (
            ["create", '{"title": "t"}'],
            ("POST", JOBS, {"title": "t"}),
            {"job": JOB},
            {"job": {**JOB, "session_id": "sess_2"}},
        ),
        (
            ["update", "job_1", '{"enabled": false}'],
            ("PATCH", f"{JOBS}/job_1", {"enabled": False}),
            {"job": JOB},
            {"job": {**JOB, "id": "job_2"}},
        ),
        (
            ["delete", "job_1"],
            ("DELETE", f"{JOBS}/job_1", None),
            {"ok": True, "deleted": True},
            {"ok": True, "deleted": False},
        ),
        (
            ["runs", "job_1", "--limit", "3"],
            ("GET", f"{JOBS}/job_1/runs?limit=3", None),
            {"job_id": "job_1", "runs": []},
            {"job_id": "job_2", "runs": []},
        ),
        (
            ["delete", "../../x?y"],
            ("DELETE", f"{JOBS}/..%2F..%2Fx%3Fy", None),
            {"deleted": True},
            {},
        ),
    ],
)
def test_jobs_asks_for_what_it_was_told_and_checks_the_receipt(
    run, server, args, asked, answer, wrong
):
    status, told, _ = run(agent_jobs, *args, answer=answer)
    assert status == 0
    assert told == ({"job": JOB} if args[0] == "get" else answer)
    assert server.asked == [(*asked, SECRET)]
    status, told, complaint = run(agent_jobs, *args, answer=wrong)
    assert (status, told) == (1, None)
    assert complaint


def test_fields_come_from_the_standard_input_too(run, server, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"prompt": "p"}'))
    assert run(agent_jobs, "create", "-", answer={"job": JOB})[0] == 0
    assert server.asked[0][2] == {"prompt": "p"}


@pytest.mark.parametrize("fields", ["", "[]", "7", "{"])
def test_fields_that_are_no_object_are_not_sent(run, server, fields):
    assert run(agent_jobs, "create", fields)[0] == 1
    assert server.asked == []


CROSS = "/api/agent/cross-chat"


@pytest.mark.parametrize(
    ("args", "path", "body", "answer", "wrong"),
    [
        (
            ["send", "--route", "route_1", "--message", "m"],
            f"{CROSS}/routes/route_1/handoffs",
            {"action": "instruction", "body": "m", "artifact_grants": []},
            {"ok": True, "route_id": "route_1", "action": "instruction", "accepted": True},
            {"ok": True, "route_id": "route_2", "action": "instruction", "accepted": True},
        ),
        (
            ["ask", "--target", "sess_2", "--message", "m"],
            f"{CROSS}/handoffs",
            {
                "action": "request_reply",
                "body": "m",
                "artifact_grants": [],
                "target_session_id": "sess_2",
            },
            {"exchange": {}, "leg": {}, "created": True},
            {"handoff": {}, "created": True},
        ),
        (
            ["respond", "--exchange", "x", "--inbound-leg", "l", "--message", "m"],
            f"{CROSS}/exchanges/x/responses",
            {"inbound_leg_id": "l", "body": "m", "request_response": False},
            {"exchange": {}, "leg": {}, "created": True},
            {"ok": True},
        ),
    ],
)
def test_chats_sends_what_it_was_told_once_and_checks_the_receipt(
    run, server, args, path, body, answer, wrong
):
    assert run(agent_chats, *args, answer=answer)[:2] == (0, answer)
    assert run(agent_chats, *args, answer=answer)[0] == 0
    first, again = server.asked
    assert first == again
    method, asked_path, asked, secret = first
    assert (method, asked_path, secret) == ("POST", path, SECRET)
    assert 8 <= len(asked.pop("idempotency_key")) <= 128
    assert asked == body
    assert run(agent_chats, *args, answer=wrong)[0] == 1


def test_another_message_is_another_one(run, server):
    answer = {"handoff": {}}
    for message in ("one", "two"):
        run(agent_chats, "send", "--target", "sess_2", "--message", message, answer=answer)
    first, second = (asked[2]["idempotency_key"] for asked in server.asked)
    assert first != second


def test_routes_are_listed(run, server):
    answer = {"routes": [], "max_handoffs_per_run": 4}
    assert run(agent_chats, "list", answer=answer)[:2] == (0, answer)
    assert server.asked == [("GET", f"{CROSS}/routes", None, SECRET)]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_file_that_others_can_use_is_no_authority(run, server, authority, mode):
    authority.chmod(mode)
    status, _, complaint = run(agent_jobs, "list", answer={"jobs": []})
    assert status == 1
    assert "others" in complaint
    assert server.asked == []


def test_links_folders_pipes_and_rubbish_are_no_authority(run, server, authority, tmp_path):
    (tmp_path / "link").symlink_to(authority)
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name, text in (("text", "x"), ("list", "[]"), ("empty", "{}")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRUSR)
    for name in ("link", "pipe", "folder", "text", "list", "empty", "missing"):
        assert run(agent_jobs, "list", file=tmp_path / name)[0] == 1, name
    assert server.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://192.0.2.1:80",
        "https://127.0.0.1:80",
        "http://127.0.0.1.example.com",
        "http://[::1",
        "http://127.0.0.1:99999",
        "file:///etc/passwd",
        "http://127.0.0.1@192.0.2.1/",
    ],
)
def test_only_this_machine_is_asked(run, monkeypatch, url):
    monkeypatch.setenv("AGENTSDOCK_SERVER_URL", url)
    status, _, complaint = run(agent_jobs, "list")
    assert status == 1
    assert "this machine" in complaint


def test_redirects_are_refusals_and_proxies_are_not_asked(run, server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert run(agent_jobs, "list", answer={"jobs": []})[0] == 0
    server.reply = (307, {"Location": f"http://127.0.0.1:{server.server_port}/other"}, b"{}")
    status, _, complaint = run(agent_jobs, "list")
    assert (status, "307" in complaint) == (1, True)
    assert len(server.asked) == 2


def test_answers_that_are_none_are_refused(run, server, monkeypatch):
    monkeypatch.setattr(agent_request, "MAX_ANSWER_BYTES", 100)
    for reply in (
        (200, {}, b"<html>"),
        (200, {}, b"[]"),
        (200, {}, b'{"jobs": [' + b" " * 100 + b"]}"),
        (201, {}, b'{"jobs": []}'),
    ):
        server.reply = reply
        assert run(agent_jobs, "list")[0] == 1
    server.reply = (403, {}, b'{"detail": "why not"}')
    assert "why not" in run(agent_jobs, "list")[2]


def test_a_helper_starts_without_the_server_and_its_libraries():
    code = (
        "import sys, agentsdock.cli.agent_jobs, agentsdock.cli.agent_chats, "
        "agentsdock.cli.publish; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"trio", "attrs", "attr", "httpx", "msgspec", "quart", "apsw", "structlog"}
    assert {name for name in loaded if name.startswith("agentsdock")} == {
        "agentsdock",
        "agentsdock.cli",
        "agentsdock.cli.agent_request",
        "agentsdock.cli.agent_jobs",
        "agentsdock.cli.agent_chats",
        "agentsdock.cli.publish",
    }
