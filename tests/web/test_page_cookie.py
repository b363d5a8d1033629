"""The page's cookie: one more carrier of the token, for the page itself."""

import pytest
from fake_dock import FakeDock
from fake_house import serving
from test_gate import OWN, TOKEN, scope, status

from agentsdock.web import auth

NAME, VALUE = auth.page_cookie(TOKEN.encode())
COOKIE = f"{NAME}={VALUE}"


def of(cookie=COOKIE, **parts):
    return status(scope(cookie=cookie, **parts), token=TOKEN)


def test_the_cookie_does_not_tell_the_token_and_changes_with_it():
    assert TOKEN not in COOKIE
    other_name, other_value = auth.page_cookie(b"another token")
    assert other_name != NAME
    assert other_value != VALUE


@pytest.mark.parametrize("path", ["/api/health", "/metrics", "/page/chats"])
def test_a_read_of_the_page_passes_by_its_cookie(path):
    assert of(path=path) == 200
    assert of(path=path, cookie="") == 401
    assert of(path=path, cookie=f"a=b; {COOKIE} ; c=d") == 200


@pytest.mark.parametrize(
    "cookie",
    [
        f"{NAME}={VALUE[:-1]}",
        f"{NAME}={VALUE}0",
        f"x{COOKIE}",
        f"{NAME}=",
        f"agentsdock={VALUE}",
        "=".join(auth.page_cookie(b"another token")),
        f"{NAME}={TOKEN}",
    ],
)
def test_other_cookies_do_not_pass(cookie):
    assert of(cookie=cookie) == 401


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT"])
def test_a_change_needs_the_origin_of_the_page_besides(method):
    assert of(method=method) == 401
    assert of(method=method, origin=f"http://{OWN}") == 200
    assert of(method=method, origin="http://evil.invalid") == 403
    assert of(method=method, origin="null") == 403
    assert of(method=method, origin="http://127.0.0.1:9999") == 403


def test_an_allowed_page_of_another_host_may_not_use_the_cookie():
    made = scope(method="POST", cookie=COOKIE, origin="https://other.example")
    assert status(made, token=TOKEN, allowed_origins=("https://other.example",)) == 401
    proxied = scope(
        method="POST", cookie=COOKIE, origin="https://dock.example", host="dock.example"
    )
    changes = {
        "allowed_origins": ("https://dock.example",),
        "allowed_hosts": ("dock.example",),
        "token": TOKEN,
    }
    assert status(proxied, **changes) == 200


def test_a_socket_needs_the_origin_of_the_page_besides():
    assert of(kind="websocket") == 401
    assert of(kind="websocket", origin=f"http://{OWN}") == 200
    assert of(kind="websocket", origin="http://localhost:9999") == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_foreign_page_cannot_use_the_cookie_to_read(site):
    assert of(sec_fetch_site=site) == 403
    assert of(sec_fetch_site=site, path="/page/chats", sec_fetch_mode="navigate") == 403


async def test_signing_in_gives_a_cookie_that_scripts_and_other_sites_never_see():
    async with serving(FakeDock(token=TOKEN), limit=30) as server, server.http() as http:
        wrong = await http.post("/login", json={"token": "guess"})
        assert wrong.status_code == 401
        assert "set-cookie" not in wrong.headers
        answer = await http.post("/login", json={"token": TOKEN})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}; Path=/; Max-Age=")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Secure" not in cookie
        assert TOKEN not in answer.text
        http.cookies.set(NAME, VALUE)
        assert (await http.get("/page/session")).status_code == 200
        out = await http.post("/logout", headers={"origin": server.url})
        assert out.headers["set-cookie"].startswith(f"{NAME}=; Path=/; Max-Age=0")


async def test_behind_tls_the_cookie_is_for_tls_only():
    dock = FakeDock(token=TOKEN, allowed_origins=("https://dock.example",))
    async with serving(dock, limit=30) as server, server.http() as http:
        headers = {"origin": "https://dock.example"}
        answer = await http.post("/login", json={"token": TOKEN}, headers=headers)
        assert answer.headers["set-cookie"].endswith("; Secure")


async def test_without_the_token_each_view_is_the_form_and_no_more():
    async with serving(FakeDock(token=TOKEN), limit=30) as server, server.http() as http:
        for path in ("/", "/chats/sess_0123456789abcdef", "/health"):
            answer = await http.get(path)
            assert answer.status_code == 401
            assert "Token of this server" in answer.text
            assert "sess_" not in answer.text
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
        for path in ("/page/chats", "/page/health", "/page/search?q=secret", "/metrics"):
            assert (await http.get(path)).status_code == 401
