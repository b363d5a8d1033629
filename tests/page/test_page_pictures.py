"""The pictures of the README; ``make pictures`` makes them anew."""

import os
import pathlib
import subprocess

import page_cli
import pytest
from page_site import TOKEN, Site, settings

from agentsdock.testing.server import running_server

pytest.importorskip("playwright")

KEPT = pathlib.Path(__file__).parents[2] / "docs" / "pictures"
DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 780}
NAMES = {"chat-light.png", "chat-dark.png", "home.png", "phone.png", "health.png"}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A server with a few days' work."""
    home = tmp_path_factory.mktemp("home")
    environment, _ = settings(home)
    work = home / "projects" / "client"
    (work / "client").mkdir(parents=True)
    (work / "client" / "retry.py").write_text(page_cli.BEFORE)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "begin")):
        subprocess.run((*git, *command), cwd=work, check=True)
    environment |= {"HOME": str(home), "AGENTSDOCK_AGENT_CWD": str(work)}
    with running_server(home / "state", environment, token=TOKEN) as server:
        site = Site(server, work)
        for title, folder in (
            ("Rename the settings module", "client"),
            ("Release notes for 1.4", "docs"),
            ("Translate the FAQ", "docs"),
            ("Speed up the test suite", "client"),
        ):
            chat = site.chat(title, folder=folder)
            site.turn(chat, "Please do")
            site.http.post(f"/api/sessions/{chat}/read", json={})
        plan = site.chat("Move the queue", folder="client", cursor_permission_mode="plan")
        site.turn(plan, "How would you move the queue into the database?")
        site.http.patch(f"/api/sessions/{plan}", json={"pinned": True})
        busy = site.chat("Why is the nightly job late?", folder="client")
        site.post(busy, "Find out why the nightly job starts late, and then wait for me.")
        site.post(busy, "Then write down what you found in docs/nightly.md")
        chat = site.chat("Fix the retry loop", folder="client")
        site.turn(
            chat,
            "The client gives up too early when the first answer is slow. "
            "Find out why and fix it, with a test.",
        )
        yield site, chat, busy
        site.http.close()


@pytest.fixture
def opened(browser, told):
    def opened(scheme, size, path):
        context = browser.new_context(base_url=told[0].url, color_scheme=scheme, viewport=size)
        page = context.new_page()
        contexts.append(context)
        page.goto("/")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="What should be done?").wait_for()
        page.goto(path)
        if path.startswith("/chats"):
            page.locator("#link[data-state=live]").wait_for()
        return page

    contexts = []
    yield opened
    for context in contexts:
        context.close()


def test_the_pictures_of_the_readme_are_made(told, opened, tmp_path):
    _, chat, busy = told
    folder = KEPT if os.environ.get("AGENTSDOCK_PICTURES") else tmp_path
    folder.mkdir(exist_ok=True)

    def keep(page, name):
        page.mouse.move(1, 1)
        page.evaluate("document.fonts.ready")
        page.screenshot(path=folder / name, animations="disabled", caret="hide")

    page = opened("light", DESK, f"/chats/{chat}")
    page.locator(".steps > summary").nth(1).click()
    page.locator("details.diff summary").click()
    page.locator(".patch").wait_for()
    page.locator(".steps").nth(1).evaluate("(steps) => steps.scrollIntoView()")
    keep(page, "chat-light.png")
    page = opened("dark", DESK, f"/chats/{busy}")
    page.locator(".row.tool").nth(2).wait_for()
    page.locator(".steps > summary").first.click()
    keep(page, "chat-dark.png")
    page = opened("light", DESK, "/")
    page.get_by_label("Message", exact=True).fill("Find the slowest query of the report page")
    page.get_by_role("combobox", name="Folder").fill("~/projects/client")
    page.get_by_role("heading", name="What should be done?").click()
    keep(page, "home.png")
    page = opened("dark", PHONE, f"/chats/{chat}")
    keep(page, "phone.png")
    page = opened("light", DESK, "/health")
    for _ in range(3 if os.environ.get("AGENTSDOCK_PICTURES") else 1):
        with page.expect_response("**/page/health"):
            pass
    keep(page, "health.png")
    assert {file.name for file in folder.iterdir()} == NAMES
    for name in NAMES:
        assert (folder / name).stat().st_size > 8_000


def test_the_readme_shows_them():
    readme = (KEPT.parents[1] / "README.md").read_text()
    for name in NAMES:
        assert f"docs/pictures/{name}" in readme
        assert (KEPT / name).is_file()
