"""The page in a browser: signing in, chats, the timeline, live."""

import re

import pytest
from page_site import TOKEN

pytest.importorskip("playwright")


def live(page):
    page.locator("#link[data-state=live]").wait_for()
    return page


def send(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()


def test_the_token_is_asked_once_and_kept_where_no_script_sees_it(site, open_page):
    page = open_page(signed=False)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("This is not the token of this server.").wait_for()
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="What should be done?").wait_for()
    assert page.evaluate("document.cookie") == ""
    assert TOKEN not in page.content()
    assert not page.evaluate("JSON.stringify(localStorage)").count(TOKEN)
    page.reload()
    page.get_by_role("heading", name="What should be done?").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()


def test_a_first_message_makes_a_chat_and_its_turn_is_seen_live(site, open_page):
    page = open_page()
    page.get_by_label("Message", exact=True).fill("Hello there [[fake show=work]]")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/chats/sess_"))
    page.get_by_text("All 42 tests pass.").wait_for()
    page.get_by_text("Done", exact=True).wait_for()
    assert page.locator("#working").is_hidden()
    assert page.locator(".steps summary").first.text_content().startswith("3 steps: thought")
    assert page.locator(".prose table").is_visible()
    assert page.get_by_role("link", name="Hello there").count() == 1
    assert page.problems == page.foreign == []


def test_history_and_live_look_the_same(site, open_page):
    chat = site.chat("Twice the same")
    page = live(open_page(f"/chats/{chat}"))
    send(page, "Once [[fake show=work]]")
    page.get_by_text("Done", exact=True).wait_for()
    rows = "Array.from(document.querySelectorAll('.row'), (row) => row.outerHTML)"
    seen = page.evaluate(rows)
    page.reload()
    live(page)
    assert page.evaluate(rows) == seen
    assert len(seen) > 8


def test_a_turn_is_stopped_with_its_receipt_and_what_waited_is_paused(site, open_page):
    chat = site.chat("To be stopped")
    page = live(open_page(f"/chats/{chat}"))
    send(page, "Wait [[fake hang=1]]")
    page.get_by_role("button", name="Stop").wait_for()
    send(page, "And then this")
    page.locator(".queued-text", has_text="And then this").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text(re.compile(r"Stopped in \d+ ms · \d+ processes ended, none left\.")).wait_for()
    page.get_by_text("1 waiting · paused").wait_for()
    page.locator(".outcome", has_text="Stopped").wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.locator(".queue-head").wait_for(state="detached")


def test_waiting_messages_are_edited_moved_and_run_now(site, open_page):
    chat = site.chat("A queue")
    site.post(chat, "[[fake hang=1]]")
    for text in ("first", "second", "third"):
        site.post(chat, text)
    page = live(open_page(f"/chats/{chat}"))
    waiting = page.locator(".queued-text")
    assert waiting.all_text_contents() == ["first", "second", "third"]
    page.locator(".queued", has_text="third").get_by_label("Move up").click()
    page.locator(".queued:nth-child(2)", has_text="third").wait_for()
    row = page.locator(".queued", has_text="first")
    row.get_by_label("Edit").click()
    box = row.get_by_label("Waiting message")
    box.fill("first, but better")
    box.press("Enter")
    page.locator(".queued-text", has_text="first, but better").wait_for()
    page.locator(".queued", has_text="second").get_by_label("Run now").click()
    page.locator(".prompt", has_text="second").wait_for()
    page.locator(".outcome", has_text="Stopped").wait_for()
    page.get_by_text("Done", exact=True).nth(2).wait_for()
    said = page.locator(".prompt .said").all_text_contents()
    assert [text.strip() for text in said[1:]] == ["second", "first, but better", "third"]


def test_a_failure_says_its_code_what_to_do_and_can_be_retried(site, open_page):
    chat = site.chat("Failing")
    site.turn(chat, "Try this [[fake noresult=1 stderr=40]]")
    page = live(open_page(f"/chats/{chat}"))
    card = page.locator(".row.error")
    assert "missing_result" in card.text_content()
    assert "retry to go on" in card.text_content()
    assert page.locator(".outcome").text_content() == "Failed"
    page.get_by_role("button", name="Retry").click()
    page.locator(".prompt").nth(1).wait_for()
    page.locator(".outcome").nth(1).wait_for()


def test_a_plan_is_a_card_of_its_own(site, open_page):
    chat = site.chat("Planning", cursor_permission_mode="plan")
    site.turn(chat, "[[fake show=plan]]")
    page = live(open_page(f"/chats/{chat}"))
    card = page.locator(".row.plan")
    assert card.get_by_role("heading", name="Move the queue").is_visible()
    assert card.get_by_text("Copy what waits").is_visible()
    assert page.locator(".bar .badge", has_text="plan").is_visible()
    seq = page.locator(".row.plan").get_attribute("data-seq")
    whole = site.http.get(f"/page/chats/{chat}/rows/{seq}")
    assert "3. Drop the file" in whole.text
    assert site.http.get(f"/page/chats/{chat}/rows/999").status_code == 404


def test_searching_finds_in_the_whole_history_and_leads_there(site, open_page):
    chat = site.chat("A haystack")
    site.saying(chat, "the zyzzyva is a weevil")
    site.turn(chat, "[[fake events=200]]")
    page = open_page()
    page.get_by_label("Search all chats").press_sequentially("zyzzy")
    hit = page.locator("a.hit", has_text="A haystack")
    hit.wait_for()
    assert "zyzzyva" in hit.text_content()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"/chats/{chat}\?at=\d+"))
    found = page.locator(".row.hit")
    found.wait_for()
    assert "zyzzyva" in found.text_content()
    assert found.evaluate(
        "(row) => { const box = row.getBoundingClientRect(); return box.top >= 0 && "
        "box.bottom <= innerHeight; }"
    )


def test_a_chat_is_renamed_pinned_forked_archived_and_deleted(site, open_page):
    chat = site.chat("Old name")
    site.turn(chat, "hello")
    page = live(open_page(f"/chats/{chat}"))

    def act(name):
        page.get_by_label("Actions of this chat").click()
        page.get_by_role("button", name=name, exact=True).click()

    act("Name and settings")
    page.get_by_label("Name", exact=True).fill("New name")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="New name").wait_for()
    act("Pin")
    page.locator(".section", has_text="Pinned").get_by_text("New name").wait_for()
    act("Fork")
    page.wait_for_url(lambda url: chat not in url)
    live(page)
    assert page.locator(".prompt", has_text="hello").is_visible()
    act("Archive")
    page.locator(".badge", has_text="archived").wait_for()
    assert page.get_by_label("Message", exact=True).is_disabled()
    act("Delete")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("heading", name="What should be done?").wait_for()


def test_the_folder_of_a_new_chat_is_completed(site, open_page):
    (site.work / "a-folder-to-find").mkdir()
    page = open_page()
    box = page.get_by_role("combobox", name="Folder on the server")
    box.fill(f"{site.work}/a-fol")
    option = page.get_by_role("option", name="a-folder-to-find")
    option.wait_for()
    box.press("ArrowDown")
    box.press("Enter")
    assert box.input_value() == f"{site.work}/a-folder-to-find/"
    message = page.get_by_label("Message", exact=True)
    box.fill("no-such-folder")
    message.fill("Work here")
    message.press("Enter")
    page.get_by_text("There is no folder no-such-folder on the server.").wait_for()
    assert message.input_value() == "Work here"
    box.fill("a-folder-to-find")
    message.press("Enter")
    page.wait_for_url(re.compile("/chats/"))
    chat = site.http.get(f"/api/sessions/{page.url.rpartition('/')[2]}").json()["session"]
    assert chat["cwd"].rstrip("/") == f"{site.work}/a-folder-to-find"


def test_files_are_attached_sent_and_listed(site, open_page):
    chat = site.chat("With files")
    page = live(open_page(f"/chats/{chat}"))
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000 1f15c4890000000d49444154789c"
        "6360606060000000050001a5f645400000000049454e44ae426082".replace(" ", "")
    )
    page.set_input_files(
        "#pick",
        [
            {"name": "shot.png", "mimeType": "image/png", "buffer": pixel},
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"},
        ],
    )
    page.get_by_label("Remove notes.txt").wait_for()
    send(page, "Look at these")
    page.get_by_text("Done", exact=True).wait_for()
    assert page.locator(".prompt .chips li").count() == 2
    assert page.locator(".file-card img").first.evaluate(
        "(image) => image.decode().then(() => image.naturalWidth)"
    )
    page.get_by_role("button", name="Files of this chat").click()
    newest = page.locator("#files li").first
    assert newest.text_content().strip().startswith("notes.txt")
    assert page.problems == page.foreign == []


DROP = """async (name) => {
    const data = new DataTransfer();
    data.items.add(new File(["dropped"], name, {type: "text/plain"}));
    for (const kind of ["dragover", "drop"]) {
        document.getElementById("scroll").dispatchEvent(
            new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true}));
    }
}"""


def test_a_file_that_is_dropped_on_the_chat_goes_with_the_message(site, open_page):
    chat = site.chat("Dropped")
    page = live(open_page(f"/chats/{chat}"))
    page.evaluate(DROP, "dropped.txt")
    page.get_by_label("Remove dropped.txt").wait_for()
    assert page.locator("#drop").is_hidden()
    send(page, "See the file")
    page.locator(".prompt .chips li").wait_for()
    assert page.locator("#attached li").count() == 0


def test_a_running_turn_gets_more_time(site, open_page):
    chat = site.chat("Slow")
    page = live(open_page(f"/chats/{chat}"))
    send(page, "[[fake show=plan hang=1]]")
    page.locator(".row.plan").wait_for()
    with page.expect_response("**/extend") as answer:
        page.get_by_role("button", name="+15 min").click()
    assert answer.value.status == 200
    assert answer.value.json()["idle_deadline"] > 900
    page.get_by_text("15 more minutes for this turn.").wait_for()
    site.http.post(f"/api/sessions/{chat}/stop")


def test_metrics_are_in_prometheus_form(site):
    chat = site.chat("Counted")
    answer = site.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert any(line.startswith("agentsdock_info{version=") for line in lines)
    assert 'agentsdock_backend_ready{backend="cursor"} 1.0' in lines
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(figures["agentsdock_chats"]) >= 1
    assert float(figures["agentsdock_resident_memory_bytes"]) > 10e6
    assert float(figures["agentsdock_database_bytes"]) > 0
    assert chat not in answer.text
    assert site.http.get("/metrics", headers={"X-AgentsDock-Token": "no"}).status_code == 401


def test_health_tells_backends_limits_and_figures(site, open_page):
    page = open_page("/health")
    ready = page.locator(".runtime.ready")
    ready.wait_for()
    assert "Cursor" in ready.text_content()
    assert page.locator("#charts figure").count() == 5
    assert page.locator(".chart-line").first.get_attribute("d").startswith("M")
    page.get_by_role("button", name="Check again").click()
    page.get_by_text("Turns at once").wait_for()


def test_the_list_shows_what_runs_what_is_new_and_what_waits(site, open_page):
    page = open_page()
    chat = site.chat("Seen from afar")
    site.post(chat, "[[fake hang=1]]")
    site.post(chat, "next")
    row = page.locator(f'a[data-chat="{chat}"]')
    look = "document.dispatchEvent(new Event('visibilitychange'))"  # rather than in 4 s
    page.evaluate(look)
    page.locator(f'a.running[data-chat="{chat}"]').wait_for()
    assert row.locator(".count").text_content().startswith("1")
    site.http.post(f"/api/sessions/{chat}/stop")
    other = site.chat("Unread")
    site.turn(other, "hello")
    page.evaluate(look)
    page.locator(f'a.unread[data-chat="{other}"]').wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_can_be_switched(open_page, scheme):
    page = open_page(color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(ground)
    assert (first == "rgb(255, 255, 255)") == (scheme == "light")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(ground) != first
    page.reload()
    assert page.evaluate(ground) != first
