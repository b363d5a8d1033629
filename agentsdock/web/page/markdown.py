"""What agents and people write, as HTML that can neither run nor load anything.

Three things hold independently: Markdown is read without HTML in it, what comes out passes a
sanitiser, and the page's policy forbids scripts, styles, frames and foreign hosts.
"""

import functools
import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from agentsdock.web.page import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_CHARS = 60_000
"""Of one text; the rest is shown when somebody asks for it."""
MAX_LINES = 2_500
MAX_HIGHLIGHTED_CHARS = 40_000
MAX_HIGHLIGHTED_LINE = 2_000
_WEB = ("http", "https", "mailto")

_HEADINGS = ("h2", "h3", "h4", "h5", "h6")
_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "blockquote", "ul", "ol", "li", "pre", "code", "a"),
    *(
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "span",
        "div",
        "button",
    ),
}
_ATTRIBUTES = {
    **{tag: {"class", "dir"} for tag in _HEADINGS},
    "a": {"href", "target", "class"},
    "span": {"class"},
    "code": {"class"},
    "div": {"class", "tabindex"},
    "pre": {"dir", "tabindex"},
    "p": {"dir"},
    "li": {"dir"},
    "ol": {"start"},
    "th": {"class"},
    "td": {"class"},
    "button": {"class", "type"},
}


def shortened(text: str) -> str:
    """As much of a text as is rendered at once."""
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS]
    if text.count("\n") > MAX_LINES:
        text = "\n".join(text.split("\n", MAX_LINES)[:MAX_LINES])
    return text


def render(text: str, chat: str) -> Markup:
    """Safe HTML.  Links without a scheme lead to the files of ``chat``."""
    made = sanitised(_reader().render(visible.prose(text), {"chat": chat, "level": 1}))
    return Markup(made)  # noqa: S704


def sanitised(html: str) -> str:
    import nh3

    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=set(_WEB),
        link_rel="noopener noreferrer",
    )


def highlighted(source: str, language: str) -> str:
    """Inner HTML of code: as it stands where the language is unknown or there is too much."""
    longest = max(map(len, source.split("\n")), default=0)
    if not language or len(source) > MAX_HIGHLIGHTED_CHARS or longest > MAX_HIGHLIGHTED_LINE:
        return str(visible.code(source))
    import pygments.lexers
    import pygments.util

    try:
        lexer = pygments.lexers.get_lexer_by_name(language[:40], stripnl=False, ensurenl=False)
    except pygments.util.ClassNotFound:
        return str(visible.code(source))
    return visible.mark_code(pygments.highlight(source, lexer, _formatter()).removesuffix("\n"))


def language_of(path: str) -> str:
    """The name of the language that a file's name tells, or nothing."""
    import pygments.lexers
    import pygments.util

    try:
        found = pygments.lexers.find_lexer_class_for_filename(path.rpartition("/")[2])
    except (pygments.util.ClassNotFound, ValueError):
        return ""
    return str(found.aliases[0]) if found is not None and found.aliases else ""


@functools.cache
def _formatter() -> Any:
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(nowrap=True, classprefix="t-")


@functools.cache
def _reader() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 24})
    reader.enable(["table", "strikethrough"])
    for name, rule in (
        ("fence", _fence),
        ("code_block", _fence),
        ("image", _image),
        ("link_open", _link),
        ("heading_open", _heading),
        ("heading_close", _heading),
        ("paragraph_open", _directed),
        ("table_open", _wrapped),
        ("table_close", _wrapped),
        ("td_open", _cell),
        ("th_open", _cell),
    ):
        reader.add_render_rule(name, rule)
    return reader


def _fence(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    language = token.info.split()[0] if token.info.split() else ""
    body = highlighted(token.content.removesuffix("\n"), language)
    shown = escape(language[:24]) if language else "text"
    return (
        f'<div class="code"><div class="code-head"><span>{shown}</span>'
        '<button type="button" class="copy">Copy</button></div>'
        f'<pre dir="ltr" tabindex="0"><code>{body}</code></pre></div>\n'
    )


def _image(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    """Never loaded: its address could carry what the chat holds."""
    token = tokens[at]
    return f"{_opened(token.attrs.get('src', ''), env)}{escape(token.content or 'image')}</a>"


def _link(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    return _opened(tokens[at].attrs.get("href", ""), env)


def _opened(address: str, env: Any) -> str:
    href, kind = _target(address, env)
    return f'<a class="{kind}" target="_blank" href="{escape(href)}">' if href else "<a>"


def _target(address: str, env: Any) -> tuple[str, str]:
    """Where a link leads, and whether that is a file of the chat."""
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError:
        return "", "nowhere"
    if parts.scheme.lower() in _WEB:
        return address, "web"
    if parts.scheme or parts.netloc or address.startswith(("#", "//", "\\")):
        return "", "nowhere"
    name = urllib.parse.quote(urllib.parse.unquote(address), safe="")
    return f"/api/sessions/{env['chat']}/links/file?target={name}", "file"


def _heading(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    """It looks as its text says, but follows the headings of the page without a gap."""
    token = tokens[at]
    size = int(token.tag[1])
    if token.nesting > 0:
        env["level"] = min(size + 1, env["level"] + 1, 6)
        return f'<h{env["level"]} class="size-{size}" dir="auto">'
    return f"</h{env['level']}>\n"


def _directed(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    return "" if tokens[at].hidden else '<p dir="auto">'


def _wrapped(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    return '<div class="table" tabindex="0"><table>' if tokens[at].nesting > 0 else "</table></div>"


def _cell(self: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    align = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="{align}">' if align in ("right", "center") else f"<{token.tag}>"
