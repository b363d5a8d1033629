"""Long chats, long turns, broken connections: the page stays quick, in place and complete."""

import time

import pytest
from page_site import TOKEN, Site, settings

from agentsdock.testing.server import running_server

pytest.importorskip("playwright")

ROWS = "document.getElementsByClassName('row').length"
MOST_ROWS = 500
STEP_SECONDS = 0.25
"""Longest that typing may have to wait."""

# Measures the longest time in which the page could not have answered a key.
WATCH = """() => {
    window.longest = 0;
    let last = performance.now();
    setInterval(() => {
        const now = performance.now();
        window.longest = Math.max(window.longest, now - last - 20);
        last = now;
    }, 20);
}"""


def live(page):
    page.locator("#link[data-state=live]").wait_for()
    return page


def at_end(page):
    return page.evaluate(
        "(() => { const s = document.getElementById('scroll'); "
        "return s.scrollHeight - s.scrollTop - s.clientHeight < 60; })()"
    )


def test_a_turn_of_20_000_events_keeps_the_page_quick_and_small(site, open_page):
    chat = site.chat("Twenty thousand")
    page = live(open_page(f"/chats/{chat}"))
    page.evaluate(WATCH)
    site.post(chat, "[[fake events=12000 tools=4000 size=200 toolsize=2000]]")
    page.get_by_label("Message", exact=True).press_sequentially("typing meanwhile")
    page.get_by_text("Done", exact=True).wait_for(timeout=90_000)
    assert page.get_by_label("Message", exact=True).input_value() == "typing meanwhile"
    assert page.evaluate(ROWS) <= MOST_ROWS
    assert at_end(page)
    assert page.locator(".answer").last.text_content().strip().startswith("#011999")
    page.evaluate("document.getElementById('scroll').scrollTop = 0")
    page.wait_for_function("() => document.getElementById('scroll').scrollTop > 0")
    assert page.evaluate(ROWS) <= MOST_ROWS + 200
    page.get_by_role("button", name="To the end").click()
    page.wait_for_function("() => document.getElementById('jump').hidden")
    assert at_end(page)
    assert page.evaluate("longest") < 1000
    assert page.problems == []


def test_scrolling_back_meets_every_row_once_and_in_order(site, open_page):
    chat = site.chat("All of it")
    site.turn(chat, "[[fake events=900]]")
    page = live(open_page(f"/chats/{chat}"))
    seen = set()
    for _ in range(80):
        rows = page.evaluate(
            "Array.from(document.querySelectorAll('.row.answer'), (row) => "
            "parseInt(row.querySelector('p').textContent.trim().slice(1), 10))"
        )
        assert rows == list(range(rows[0], rows[0] + len(rows)))
        seen.update(rows)
        if rows[0] == 0:
            break
        first = page.evaluate("document.querySelector('.row').dataset.seq")
        page.evaluate("document.getElementById('scroll').scrollTop = 0")
        page.wait_for_function(
            "(old) => document.querySelector('.row').dataset.seq !== old", arg=first
        )
    assert seen == set(range(900))


def test_who_reads_further_up_is_not_pulled_down(site, open_page):
    chat = site.chat("Reading")
    site.turn(chat, "[[fake events=60 size=400]]")
    page = live(open_page(f"/chats/{chat}"))
    page.evaluate("document.getElementById('scroll').scrollTop -= 2000")
    page.get_by_role("button", name="To the end").wait_for()
    row = page.evaluate_handle(
        "document.elementFromPoint(innerWidth / 2, innerHeight / 2).closest('.row')"
    )
    before = row.evaluate("(row) => row.getBoundingClientRect().top")
    site.turn(chat, "[[fake events=1000]]")
    page.get_by_role("button", name="New below").wait_for()
    assert abs(row.evaluate("(row) => row.getBoundingClientRect().top") - before) < 2
    page.get_by_role("button", name="New below").click()
    page.get_by_text("Done", exact=True).last.wait_for()


def test_large_texts_are_cut_with_a_way_to_the_rest(site, open_page):
    chat = site.chat("Large")
    text = "word " * 20_000
    site.saying(chat, text)
    page = live(open_page(f"/chats/{chat}"))
    answer = page.locator(".answer")
    assert len(answer.locator(".prose").text_content()) < 70_000
    answer.get_by_role("button", name="Show all").click()
    page.locator(".whole").wait_for()
    assert page.locator(".whole").text_content().strip() == text.strip()


def test_a_restart_of_the_server_loses_neither_events_nor_the_draft(
    tmp_path, browser, open_page, site
):
    environment, work = settings(tmp_path)
    state = tmp_path / "state"
    with browser.new_context() as context:
        with running_server(state, environment, token=TOKEN) as server:
            port = int(server.url.rpartition(":")[2])
            own = Site(server, work)
            chat = own.chat("Over a restart")
            page = context.new_page()
            page.goto(server.url)
            page.get_by_label("Token").fill(TOKEN)
            page.keyboard.press("Enter")
            page.get_by_role("heading", name="What should be done?").wait_for()
            page.goto(f"{server.url}/chats/{chat}")
            live(page)
            page.get_by_label("Message", exact=True).fill("half a sent")
            own.post(chat, "[[fake events=3 hang=1]]")
            page.locator("#working").wait_for()
            own.http.close()
        page.locator("#link[data-state=reconnecting]").wait_for()
        with running_server(state, environment, token=TOKEN, port=port) as server:
            own = Site(server, work)
            page.evaluate("dispatchEvent(new Event('online'))")  # it need not wait for its turn
            live(page)
            page.locator(".outcome", has_text="Interrupted").wait_for()
            assert page.get_by_label("Message", exact=True).input_value() == "half a sent"
            own.turn(chat, "[[fake events=5]]")
            page.get_by_text("Done", exact=True).wait_for()
            shown = page.evaluate("Array.from(document.querySelectorAll('.row'), (row) => row.id)")
            assert len(shown) == len(set(shown))
            page.reload()
            live(page)
            again = page.evaluate("Array.from(document.querySelectorAll('.row'), (row) => row.id)")
            assert again == shown
            assert page.get_by_label("Message", exact=True).input_value() == "half a sent"
            other = own.chat("Another")
            page.goto(f"{server.url}/chats/{other}")
            live(page)
            assert page.get_by_label("Message", exact=True).input_value() == ""
            own.http.close()


def test_a_message_whose_answer_was_lost_is_taken_once(site, open_page):
    chat = site.chat("Once")
    page = live(open_page(f"/chats/{chat}"))
    lost = []

    def lose(route):
        answer = route.fetch()
        if not lost:
            lost.append(answer.status)
            route.abort()
        else:
            route.fulfill(response=answer)

    page.route("**/turns", lose)
    box = page.get_by_label("Message", exact=True)
    box.fill("only once")
    box.press("Enter")
    page.get_by_text("The server cannot be reached.").wait_for()
    assert box.input_value() == "only once"
    box.press("Enter")
    page.wait_for_function("() => document.getElementById('message').value === ''")
    page.get_by_text("Done", exact=True).wait_for()
    assert lost == [200]
    assert page.locator(".prompt").count() == 1


def test_a_chat_that_is_deleted_elsewhere_says_so(site, open_page):
    chat = site.chat("Gone soon")
    page = live(open_page(f"/chats/{chat}"))
    site.http.delete(f"/api/sessions/{chat}")
    page.get_by_text("This chat has been deleted.").wait_for()
    page.goto(f"/chats/{chat}")
    page.get_by_text("This chat is not here").wait_for()


def test_health_answers_while_large_texts_are_rendered(site, open_page):
    chat = site.chat("Heavy")
    site.saying(chat, "*a **b " * 8_000)
    page = live(open_page(f"/chats/{chat}"))
    page.evaluate(f"for (let i = 0; i < 2; i++) fetch('/page/chats/{chat}/rows?limit=120')")
    worst = 0.0
    for _ in range(20):
        began = time.monotonic()
        assert site.http.get("/api/health").status_code == 200
        worst = max(worst, time.monotonic() - began)
    assert worst < STEP_SECONDS * 2
