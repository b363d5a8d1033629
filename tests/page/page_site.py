"""A server with the page's CLI, by its API, as somebody beside the browser uses it."""

import contextlib
import pathlib
import subprocess
import sys

import httpx

TOKEN = "page-SECRET-7"
HERE = pathlib.Path(__file__).parent


class Site:
    """The server, by its API, as somebody beside the browser uses it."""

    def __init__(self, server, work):
        self.server = server
        self.url = server.url
        self.work = work
        headers = {"X-AgentsDock-Token": TOKEN}
        self.http = httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60)

    def chat(self, title="A chat", **fields):
        answer = self.http.post("/api/sessions", json={"title": title, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["session"]["id"]

    def post(self, chat, prompt):
        answer = self.http.post(f"/api/sessions/{chat}/turns", json={"prompt": prompt})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def turn(self, chat, prompt, seconds=60):
        """Send and wait for the end, which ``stop`` of an idle chat would not tell."""
        run_id = self.post(chat, prompt)["run_id"]
        for _ in range(int(seconds / 0.05)):
            page = self.http.get(f"/api/sessions/{chat}", params={"limit": 5}).json()
            for event in page["events"]:
                if event.get("run_id") == run_id and event["type"] == "turn_finished":
                    return event
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.process.wait(0.05)
        raise AssertionError("the turn did not end")

    def saying(self, chat, text):
        """A turn whose answer is this very text."""
        path = self.work / f"text-{len(list(self.work.iterdir()))}"
        path.write_text(text, encoding="utf-8")
        return self.turn(chat, f"[[fake say={path}]]")


def settings(folder):
    program = folder / "bin" / "cursor-agent"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!{sys.executable} -I\nimport sys\nsys.path.insert(0, {str(HERE)!r})\n"
        "import page_cli\nsys.exit(page_cli.main())\n"
    )
    program.chmod(0o755)
    work = folder / "work"
    work.mkdir()
    return {
        "CURSOR_BIN": str(program),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(work),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }, work
