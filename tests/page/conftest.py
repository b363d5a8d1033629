"""A real server and a real, headless Chromium, shared by all tests of the page.

Playwright runs a loop of its own in this thread, so these tests are plain functions.
"""

import contextlib
import os
import pathlib
import subprocess
import sys

import httpx
import pytest

from agentsdock.testing.server import running_server

TOKEN = "page-SECRET-7"
HERE = pathlib.Path(__file__).parent
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
]


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


@pytest.fixture(scope="package")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    environment, work = settings(folder)
    with running_server(folder / "state", environment, token=TOKEN) as server:
        made = Site(server, work)
        with made.http:
            yield made


@pytest.fixture(scope="package")
def browser():
    if not os.path.exists(CHROMIUM):
        pytest.skip(f"no browser: {CHROMIUM} is not there (Debian package chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def signed_in(browser, site):
    """The cookie, as the form has got it."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(site.url)
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="What shall be done?").wait_for()
        return context.storage_state()


@pytest.fixture
def open_page(browser, site, signed_in):
    """Opens pages in contexts of their own; what they ask of others and complain of is kept."""
    contexts = []

    def open_page(path="/", *, signed=True, **options):
        context = browser.new_context(
            base_url=site.url, storage_state=signed_in if signed else None, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.foreign = []
        page.problems = []
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((site.url, site.url.replace("http", "ws")))
                else page.foreign.append(request.url)
            ),
        )
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on(
            "console",
            lambda said: page.problems.append(said.text) if said.type == "error" else None,
        )
        page.set_default_timeout(15_000)
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
