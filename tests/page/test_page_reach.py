"""For everybody: screen reader, keyboard, phone, input methods, old ways of copying."""

import re

import pytest

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}


def live(page):
    page.locator("#link[data-state=live]").wait_for()
    return page


@pytest.fixture(scope="module")
def rich(site):
    """A chat with all that a timeline has."""
    chat = site.chat("Everything at once")
    site.turn(chat, "Please [[fake show=work]]")
    site.turn(chat, "Fail [[fake noresult=1]]")
    site.http.post(f"/api/sessions/{chat}/files", files={"file": ("a.txt", b"a", "text/plain")})
    site.post(chat, "[[fake hang=1 show=plan]]")
    site.post(chat, "waiting")
    return chat


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(rich, open_page, scheme):
    problems = {}
    for path in ("/", f"/chats/{rich}", "/health"):
        page = open_page(path, color_scheme=scheme, bypass_csp=True)
        if path.startswith("/chats"):
            live(page)
            page.locator(".row.plan").wait_for()
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            page.get_by_role("button", name="Files of this chat").click()
            page.locator("#files li").first.wait_for()
        found = axe.Axe().run(page)
        problems[path] = [
            (one["id"], [node["html"][:160] for node in one["nodes"]][:4])
            for one in found.response["violations"]
        ]
    assert problems == {path: [] for path in problems}


def test_axe_finds_nothing_in_the_sign_in_form(open_page):
    page = open_page(signed=False, bypass_csp=True)
    assert axe.Axe().run(page).response["violations"] == []


def test_all_is_reached_by_keyboard_alone(site, open_page):
    page = open_page("/health")
    page.keyboard.press("Tab")
    assert page.locator(":focus").text_content() == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Alt+n")
    page.get_by_role("heading", name="What should be done?").wait_for()
    page.get_by_label("Message", exact=True).focus()
    page.keyboard.type("By keyboard [[fake show=work hang=1]]")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and a second line")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/chats/"))
    live(page)
    page.get_by_text("All 42 tests pass.").wait_for()
    assert "and a second line" in page.locator(".prompt .said").text_content()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.locator(".outcome", has_text="Stopped").wait_for()
    page.locator(".steps summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".steps[open]").count() >= 1
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.get_by_label("Actions of this chat").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.locator(":focus").text_content().strip() == "Name and settings"
    page.keyboard.press("Escape")
    assert page.locator(".menu[open]").count() == 0
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


COMPOSE = """(box) => {
    box.focus();
    const key = (options) => box.dispatchEvent(
        new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true, ...options}));
    key({isComposing: true, keyCode: 229});
    box.dispatchEvent(new CompositionEvent("compositionend", {bubbles: true}));
    key({isComposing: false, keyCode: 229});
}"""


def test_enter_of_an_input_method_sends_nothing(site, open_page):
    chat = site.chat("Input methods")
    page = live(open_page(f"/chats/{chat}"))
    box = page.get_by_label("Message", exact=True)
    box.fill("にほんご")
    box.evaluate(COMPOSE)
    assert box.input_value() == "にほんご"
    assert page.locator(".prompt").count() == 0
    box.press("Enter")
    page.locator(".prompt", has_text="にほんご").wait_for()
    assert box.input_value() == ""
    assert page.locator(".prompt").count() == 1
    page.get_by_text("Done", exact=True).wait_for()
    site.post(chat, "[[fake hang=1]]")
    site.post(chat, "waits")
    row = page.locator(".queued")
    row.get_by_label("Edit").click()
    edit = row.get_by_label("Waiting message")
    edit.fill("かな")
    edit.evaluate(COMPOSE)
    assert edit.is_visible()
    assert edit.input_value() == "かな"
    site.http.post(f"/api/sessions/{chat}/stop")


def test_copying_gives_the_exact_text_without_the_clipboard_interface(site, open_page):
    chat = site.chat("Copy")
    code = "def f():\n\treturn 1  \n\n\n    x = '<&>'"
    site.saying(chat, f"Look:\n\n```python\n{code}\n```\n")
    page = open_page(f"/chats/{chat}", permissions=["clipboard-read"])
    live(page)
    page.evaluate("Object.defineProperty(window, 'isSecureContext', {value: false})")
    page.locator(".prose .copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == code
    page.evaluate("document.execCommand = () => false")
    page.get_by_role("button", name="Copied").wait_for(state="detached")
    page.locator(".prose .copy").click()
    page.get_by_text("does not let the page copy").wait_for()
    assert page.evaluate("String(getSelection())").strip() == code.strip()


def test_a_phone_shows_composer_and_stop_and_never_scrolls_sideways(site, open_page):
    chat = site.chat("A title that is far too long for any phone " * 4)
    wide = "| a | b |\n|---|---|\n| " + "x" * 90 + " | " + "y" * 90 + " |\n\n"
    site.saying(chat, "w" * 300 + "\n\n" + wide + "```\n" + "z" * 400 + "\n```\n")
    site.post(chat, "[[fake hang=1]]")
    page = live(open_page(f"/chats/{chat}", **PHONE))
    page.set_viewport_size({"width": 360, "height": 340})  # as with a keyboard
    for selector in ("#message", "#stop", "#send"):
        box = page.locator(selector).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 340, selector
    sideways = (
        "[document.documentElement, document.getElementById('scroll')]"
        ".some((one) => one.scrollWidth > one.clientWidth)"
    )
    assert not page.evaluate(sideways)
    small = page.evaluate(
        "[...document.querySelectorAll('input, textarea, select')].filter((one) => "
        "parseFloat(getComputedStyle(one).fontSize) < 16 && one.type !== 'radio' && one.type !== "
        "'file').map((one) => one.outerHTML)"
    )
    assert small == []
    assert "user-scalable" not in page.content()
    assert "maximum-scale" not in page.content()
    page.evaluate("document.documentElement.style.fontSize = '28px'")  # text at 200 %
    assert not page.evaluate(sideways)
    assert page.locator("#stop").bounding_box()["y"] < 340
    site.http.post(f"/api/sessions/{chat}/stop")


def test_the_drawer_of_a_phone_opens_and_closes(site, open_page):
    chat = site.chat("Behind the drawer")
    page = live(open_page(f"/chats/{chat}", **PHONE))
    link = page.locator(f'a[data-chat="{chat}"]')
    assert not link.is_visible()
    page.get_by_role("button", name="Chats").click()
    link.wait_for()
    page.keyboard.press("Escape")
    link.wait_for(state="hidden")


def test_who_wants_no_motion_gets_none(site, open_page):
    page = open_page(reduced_motion="reduce")
    running = page.evaluate(
        "document.getAnimations().filter((one) => one.playState === 'running').length"
    )
    assert running == 0
