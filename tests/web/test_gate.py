import pytest
from fake_dock import CHAT, settings

from agentsdock.model.errors import DockError
from agentsdock.web.gate import Policy, check

TOKEN = "s3cret-Tökén"
OWN = "127.0.0.1:7850"


def scope(path="/api/health", method="GET", kind="http", query=b"", host=OWN, **headers):
    named = [(b"host", host.encode())] if host is not None else []
    for name, value in headers.items():
        values = value if isinstance(value, list) else [value]
        named += [(name.replace("_", "-").encode(), item.encode()) for item in values]
    made = {"type": kind, "path": path, "query_string": query, "headers": named}
    return made | ({"method": method} if kind == "http" else {})


def status(made, **changes):
    try:
        check(made, Policy.of(settings(**changes)))
    except DockError as error:
        return error.status
    return 200


PATHS = ["/", "/healthz", "/metrics", "/api/health", "/static/app.js", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("127.0.0.1:7850", True),
        ("127.0.0.1", True),
        ("localhost:7850", True),
        ("LOCALHOST", True),
        ("[::1]:7850", True),
        ("[::1]", True),
        ("192.168.1.20:7850", True),
        ("Dock.Example:7850", True),
        ("dock.example.evil.invalid", False),
        ("evil.invalid", False),
        ("localhost.evil.invalid", False),
        ("127.0.0.1.evil.invalid", False),
        ("evil.invalid@localhost", False),
        ("localhost@evil.invalid", False),
        ("0x7f.1", False),
        ("127.1", False),
        ("2130706433", False),
        ("127.0.0.01", False),
        ("localhost:", False),
        ("localhost:80:80", False),
        ("localhost:x", False),
        ("::1", False),
        ("[::1%eth0]", False),
        ("[::1", False),
        ("[::1]x", False),
        ("", False),
        (None, False),
    ],
)
def test_only_loopback_names_addresses_and_configured_names_are_hosts(host, passes, path, kind):
    got = status(scope(path, kind=kind, host=host), allowed_hosts=("dock.example",))
    assert got == (200 if passes else 403)


def test_two_host_headers_are_refused():
    made = scope(host=None)
    made["headers"] = [(b"host", b"localhost"), (b"host", b"localhost")]
    assert status(made) == 403


def test_a_request_target_that_names_another_server_is_refused():
    assert status(scope("http://evil.invalid/api/health")) == 400


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("path", ["//api/sessions", "///api/sessions", "//", "//healthz"])
def test_extra_slashes_do_not_lead_around_the_token(path, kind):
    assert status(scope(path, kind=kind), token=TOKEN) == 404


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("origin", "passes"),
    [
        ("http://127.0.0.1:7850", True),
        ("HTTP://127.0.0.1:7850", True),
        ("https://dock.example", True),
        ("https://evil.invalid", False),
        ("null", False),
        ("", False),
        ("http://localhost:9999", False),
        ("http://localhost:7850", False),
        ("https://127.0.0.1:7850", False),
        ("http://127.0.0.1", False),
        ("http://127.0.0.1:7850.evil.invalid", False),
        (["http://127.0.0.1:7850", "https://evil.invalid"], False),
    ],
)
def test_pages_of_other_origins_are_refused(origin, passes, method, kind):
    made = scope(method=method, kind=kind, origin=origin, sec_fetch_site="cross-site")
    assert status(made, allowed_origins=("https://Dock.example/",)) == (200 if passes else 403)


@pytest.mark.parametrize(
    ("site", "passes"),
    [("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False)],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_foreign_page_is_known_by_its_site_where_no_origin_is_sent(site, passes, kind):
    assert status(scope(kind=kind, sec_fetch_site=site)) == (200 if passes else 403)


def test_a_link_on_another_page_may_lead_to_the_front_page_but_not_into_the_api():
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert status(scope("/", **link)) == 200
    assert status(scope("/", method="POST", **link)) == 403
    assert status(scope("/api/sessions", **link)) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"content_type": "application/json", "content_length": "2"}, 200),
        ({"content_type": "Application/JSON; charset=utf-8", "content_length": "2"}, 200),
        ({}, 200),
        ({"content_length": "0"}, 200),
        ({"content_length": "2"}, 415),
        ({"transfer_encoding": "chunked"}, 415),
        ({"content_type": "text/plain", "content_length": "2"}, 415),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded", "content_length": "0"}, 415),
        ({"content_type": "multipart/form-data; boundary=x", "content_length": "9"}, 415),
        ({"content_type": "application/jsonp", "content_length": "2"}, 415),
        ({"content_type": ["application/json", "text/plain"], "content_length": "2"}, 415),
        ({"content_type": "application/json", "content_length": str(16 * 2**20)}, 200),
        ({"content_type": "application/json", "content_length": str(16 * 2**20 + 1)}, 413),
    ],
)
def test_a_body_must_say_that_it_is_json_and_fit(method, headers, expected):
    assert status(scope("/api/sessions", method, **headers)) == expected


CARRIERS = [
    {"authorization": f"Bearer {TOKEN}"},
    {"authorization": f"bEARER  {TOKEN}"},
    {"x_agentsdock_token": TOKEN},
    {"x_zenithdock_token": TOKEN},
    {"query": b"token=s3cret-T%C3%B6k%C3%A9n"},
    {"query": b"after=3&%74oken=s3cret-T%c3%b6k%c3%a9n&x"},
    {"query": b"token=wrong&token=s3cret-T%C3%B6k%C3%A9n"},
    {"authorization": "Bearer wrong", "x_agentsdock_token": TOKEN},
]
SUBPROTOCOL = "agentsdock-token.czNjcmV0LVTDtmvDqW4"


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_each_carrier_of_the_token_opens_the_api(carrier, kind):
    assert status(scope(kind=kind, **carrier), token=TOKEN) == 200


def test_a_socket_takes_the_token_as_a_subprotocol_and_a_request_does_not():
    offer = {"sec_websocket_protocol": f"agentsdock-events-v1, {SUBPROTOCOL}"}
    assert status(scope(kind="websocket", **offer), token=TOKEN) == 200
    assert status(scope(**offer), token=TOKEN) == 401


@pytest.mark.parametrize(
    "carrier",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"x_agentsdock_token": ""},
        {"query": b"TOKEN=s3cret-T%C3%B6k%C3%A9n"},
        {"query": b"token="},
        {"query": b"token"},
        {"sec_websocket_protocol": "agentsdock-token."},
        {"sec_websocket_protocol": "agentsdock-token.****"},
        {"sec_websocket_protocol": SUBPROTOCOL[:-2]},
        {"cookie": f"token={TOKEN}"},
    ],
)
@pytest.mark.parametrize("path", ["/api/health", f"/api/sessions/{CHAT}/events", "/metrics"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_without_the_right_token_the_api_is_shut(carrier, path, kind):
    assert status(scope(path, kind=kind, **carrier), token=TOKEN) == 401


def test_without_a_configured_token_the_api_is_open():
    assert status(scope()) == 200


def test_the_liveness_probe_needs_no_token():
    assert status(scope("/healthz"), token=TOKEN) == 200


@pytest.mark.parametrize(("length", "expected"), [(1000, 200), (2_000_000, 413), (10**15, 413)])
def test_an_upload_that_cannot_fit_is_refused_on_sight(length, expected):
    made = scope(
        f"/api/sessions/{CHAT}/files",
        "POST",
        content_type="multipart/form-data; boundary=x",
        content_length=str(length),
    )
    assert status(made, max_upload_bytes=500_000) == expected
