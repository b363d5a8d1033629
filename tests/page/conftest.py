"""A real server and a real, headless Chromium, shared by all tests of the page.

Playwright runs a loop of its own in this thread, so these tests are plain functions.
"""

import contextlib
import os

import pytest
from page_site import TOKEN, Site, settings

from agentsdock.testing.server import running_server

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
        page.get_by_role("heading", name="What should be done?").wait_for()
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
        page.answered = []
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((site.url, site.url.replace("http", "ws")))
                else page.foreign.append(request.url)
            ),
        )
        page.on(
            "response",
            lambda answer: (
                None if answer.url.startswith(site.url) else page.answered.append(answer.url)
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
