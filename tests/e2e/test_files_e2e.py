"""Files through a real server: whole or not at all, in parts, and only in their own chat."""

import os
import pathlib
from urllib.parse import quote

import httpx
import pytest
import trio
from serving_house import House, peak_memory
from test_forks_e2e import fork
from test_timeline_e2e import get, played

from agentsdock.testing.server import running_server

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


async def upload(house, chat, name, data, kind=None, status=200):
    part = (name, data) if kind is None else (name, data, kind)
    answer = await house.http.post(f"/api/sessions/{chat}/files", files={"file": part})
    assert answer.status_code == status, answer.text
    return answer.json().get("file") or answer.json()


@pytest.fixture(scope="module")
def live_server(shared_server):
    return shared_server


@pytest.fixture
def on_disk(house):
    """The files on disk that this test has made."""
    root = house.server.state_dir / "files"
    before = set(os.listdir(root))
    return lambda: sorted(set(os.listdir(root)) - before)


async def test_an_uploaded_file_comes_back_as_it_was(house):
    chat = await house.chat()
    record = await upload(house, chat, "plan a.png", PNG)
    assert record["filename"] == "plan a.png"
    assert (record["kind"], record["session_id"]) == ("upload", chat)
    assert (record["size"], record["content_type"]) == (len(PNG), "image/png")
    path = pathlib.Path(record["path"])
    assert path.read_bytes() == PNG
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    url = f"/api/sessions/{chat}/files/{record['id']}"
    answer = await house.http.get(url)
    assert answer.content == PNG
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-disposition"].startswith('inline; filename="plan a.png"')
    head = await house.http.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(PNG))
    part = await house.http.head(url, headers={"range": "bytes=0-9"})
    assert (part.status_code, part.headers["content-length"]) == (200, str(len(PNG)))
    event = (await get(house, f"{url}/event"))["event"]
    assert (event["type"], event["file"]) == ("file_uploaded", record)
    [row] = (await get(house, f"/api/sessions/{chat}/files"))["files"]
    named = {"event_id": event["id"], "event_seq": event["seq"], "event_type": "file_uploaded"}
    assert row == {**record, **named}
    legacy = await house.http.get(f"/api/files/{record['id']}")
    assert legacy.content == PNG


RANGES = [
    ("bytes=0-0", 206, "bytes 0-0/1000", (0, 1)),
    ("bytes=0-", 206, "bytes 0-999/1000", (0, 1000)),
    ("bytes=-10", 206, "bytes 990-999/1000", (990, 1000)),
    ("bytes=-2000", 206, "bytes 0-999/1000", (0, 1000)),
    ("bytes=990-5000", 206, "bytes 990-999/1000", (990, 1000)),
    ("bytes=1000-", 416, "bytes */1000", None),
    ("bytes=-0", 416, "bytes */1000", None),
    ("bytes=8-3", 200, None, (0, 1000)),
    ("items=0-5", 200, None, (0, 1000)),
    ("bytes=0-1,5-6", 200, None, (0, 1000)),
    ("bytes=-", 200, None, (0, 1000)),
]


async def test_parts_of_a_file_are_those_that_were_asked_for(house):
    chat = await house.chat()
    data = os.urandom(1000)
    record = await upload(house, chat, "a.mp4", data)
    for header, status, described, span in RANGES:
        answer = await house.http.get(
            f"/api/sessions/{chat}/files/{record['id']}", headers={"range": header}
        )
        assert answer.status_code == status, header
        assert answer.headers.get("content-range") == described
        if span:
            assert answer.content == data[slice(*span)], header
            assert answer.headers["content-length"] == str(len(answer.content))


NAMES = [
    ("résumé 語.pdf", "résumé 語.pdf"),
    ('a"b;c.txt', "a_b_c.txt"),
    ("a\u202etxt.exe", "a_txt.exe"),
    ("e\u0301tat.txt", "état.txt"),
    ("²ª.txt", "²ª.txt"),
    ("../../etc/passwd", "passwd"),
    ("..\\x\\y.txt", "y.txt"),
    ("...", "file"),
    ("   ", "file"),
    (".hidden", "hidden"),
    ("trail. ", "trail"),
    ("x" * 300 + ".txt", "x" * 196 + ".txt"),
    ("x" * 255, "x" * 200),
    ("x" * 256, "x" * 200),
    ("語" * 100 + ".txt", "語" * 65 + ".txt"),
    ("हिन्दी.txt", "हिन्दी.txt"),
]


async def test_names_fit_into_headers_folders_and_eyes(house):
    chat = await house.chat()
    for given, shown in NAMES:
        record = await upload(house, chat, given, b"x")
        assert record["filename"] == shown, given
        assert pathlib.Path(record["path"]).name == shown
        answer = await house.http.get(f"/api/sessions/{chat}/files/{record['id']}")
        header = answer.headers["content-disposition"]
        assert header.isascii()
        assert header.endswith(f"; filename*=UTF-8''{quote(shown, safe='')}")


async def test_a_name_with_line_breaks_becomes_no_header(house):
    chat = await house.chat()
    for name in ('filename="a%0D%0ASet-Cookie: x=1.txt"', "filename*=UTF-8''a%0D%0ASet-Cookie: x"):
        form = (
            f'--x\r\nContent-Disposition: form-data; name="file"; {name}\r\n\r\nhello\r\n--x--\r\n'
        )
        path = f"/api/sessions/{chat}/files"
        answer = await house.http.post(path, content=form.encode(), headers=FORM)
        assert answer.status_code == 200, answer.text
        url = f"{path}/{answer.json()['file']['id']}"
        answer = await house.http.get(url)
        assert answer.text == "hello"
        assert "set-cookie" not in answer.headers


async def test_pages_that_could_run_are_downloads_in_a_sandbox(house):
    chat = await house.chat()
    for name, kind in (
        ("a.svg", "image/svg+xml"),
        ("a.html", "text/html"),
        ("a.html", ""),
        ("a.xhtml", "application/xhtml+xml"),
        ("a.xml", "text/xml"),
        ("a.png", "text/html"),
    ):
        record = await upload(house, chat, name, b"<script>1</script>", kind)
        headers = (await house.http.get(f"/api/sessions/{chat}/files/{record['id']}")).headers
        assert headers["content-disposition"].startswith("attachment")
        assert headers["content-security-policy"].startswith("sandbox")
        assert headers["x-content-type-options"] == "nosniff"
    record = await upload(house, chat, "a.html", b"<script>1</script>", "image/png")
    headers = (await house.http.get(f"/api/sessions/{chat}/files/{record['id']}")).headers
    assert headers["content-type"] == "image/png"
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_turn_is_told_where_its_files_lie(house):
    chat = await house.chat()
    record = await upload(house, chat, "notes.txt", b"hello")
    other = await house.chat()
    for target, status in ((chat, 200), (other, 404)):
        answer = await house.http.post(
            f"/api/sessions/{target}/turns",
            json={"prompt": "[[fake]]", "file_ids": [record["id"], record["id"]]},
        )
        assert answer.status_code == status
    started = [
        event
        for event in (await get(house, f"/api/sessions/{chat}"))["events"]
        if event["type"] == "turn_started"
    ]
    assert [event["file_ids"] for event in started] == [[record["id"]]]


async def test_a_file_is_there_for_its_own_chat_only(house):
    chat, other = await house.chat(), await house.chat()
    record = await upload(house, chat, "a.txt", b"x")
    for path in (
        f"{other}/files/{record['id']}",
        f"{other}/files/{record['id']}/event",
        f"{other}/links/file?target={record['id']}",
        f"{chat}/files/file_0000000000000000",
        f"{chat}/links/file?target=nothing",
        "sess_0000000000000000/files",
    ):
        answer = await house.http.get(f"/api/sessions/{path}")
        assert answer.status_code == 404, path
    assert (
        await house.http.get(f"/api/files/{record['id']}?session_id={other}")
    ).status_code == 404
    for target in (record["id"], "a.txt", record["path"], f"file://{record['path']}"):
        answer = await house.http.get(f"/api/sessions/{chat}/links/file", params={"target": target})
        assert (answer.status_code, answer.content) == (200, b"x")
    assert (await house.http.get(f"/api/sessions/{chat}/links/file")).status_code == 400
    elsewhere = {"target": f"file://host.example{record['path']}"}
    answer = await house.http.get(f"/api/sessions/{chat}/links/file", params=elsewhere)
    assert answer.status_code == 400


async def test_lists_are_paged_newest_first_and_by_type(house):
    chat = await house.chat()
    for number in range(5):
        await upload(house, chat, f"{number}.{'png' if number % 2 else 'txt'}", b"x")
    whole = await get(house, f"/api/sessions/{chat}/files")
    assert [row["filename"][0] for row in whole["files"]] == ["4", "3", "2", "1", "0"]
    assert (whole["total"], whole["has_more"], whole["limit"]) == (5, False, None)
    page = await get(house, f"/api/sessions/{chat}/files", limit=2, offset=2)
    assert [row["filename"][0] for row in page["files"]] == ["2", "1"]
    assert (page["total"], page["offset"], page["limit"], page["has_more"]) == (5, 2, 2, True)
    images = await get(house, f"/api/sessions/{chat}/files", content_prefix="image/")
    assert [row["filename"] for row in images["files"]] == ["3.png", "1.png"]
    for bad in ({"limit": 0}, {"limit": 201}, {"offset": "x"}):
        await get(house, f"/api/sessions/{chat}/files", 422, **bad)


FORM = {"content-type": "multipart/form-data; boundary=x"}


async def test_forms_that_are_none_are_refused_and_leave_nothing(house, on_disk):
    chat = await house.chat()
    path = f"/api/sessions/{chat}/files"
    two = [("file", ("a", b"x")), ("file", ("b", b"y"))]
    for sent in (
        {"files": {"other": ("a", b"x")}},
        {"files": two},
        {"files": {"file": ("a", b"x")}, "data": {"more": "field"}},
        {"content": b"--x\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"content": b"", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {
            "content": b"y" * 3_000_000,
            "headers": {"content-type": "multipart/form-data; boundary=x"},
        },
    ):
        answer = await house.http.post(path, **sent)
        assert answer.status_code == 422, sent
    nameless = {"content-type": "multipart/form-data"}
    assert (await house.http.post(path, content=b"x", headers=nameless)).status_code == 400
    assert (await house.http.post(path, json={})).status_code == 415
    await upload(house, "sess_0000000000000000", "a", b"x", status=404)
    assert on_disk() == []
    assert (await get(house, path))["total"] == 0


async def test_an_upload_that_breaks_off_leaves_nothing(house, on_disk):
    chat = await house.chat()
    head = (
        f"POST /api/sessions/{chat}/files HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"X-AgentsDock-Token: {house.server.token}\r\nContent-Length: 100000000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    ).encode()
    for _ in range(3):
        async with await house.connect() as stream:
            await stream.send_all(head + b"x" * 3_000_000)
            with trio.fail_after(10):
                while not on_disk():
                    await trio.sleep(0.01)
    with trio.fail_after(10):
        while on_disk():
            await trio.sleep(0.01)
    assert (await get(house, f"/api/sessions/{chat}/files"))["total"] == 0


async def test_deleting_a_chat_deletes_its_files_and_not_those_of_its_fork(house, on_disk):
    chat, _ = await played(house, "[[fake]] hello")
    record = await upload(house, chat, "a.txt", b"mine")
    child = (await fork(house, chat))["session"]["id"]
    [copy] = (await get(house, f"/api/sessions/{child}/files"))["files"]
    assert (copy["forked_from_file_id"], copy["session_id"]) == (record["id"], child)
    assert copy["event_type"] == "file_uploaded"
    assert (await house.http.delete(f"/api/sessions/{chat}")).json()["deleted"]
    assert on_disk() == [copy["id"]]
    answer = await house.http.get(f"/api/sessions/{child}/files/{copy['id']}")
    assert answer.content == b"mine"
    event = (await get(house, f"/api/sessions/{child}/files/{copy['id']}/event"))["event"]
    assert event["file"]["id"] == copy["id"]
    assert event["forked"] is True


async def test_a_message_with_a_file_that_is_gone_is_refused(house):
    chat = await house.chat()
    record = await upload(house, chat, "notes.txt", b"hello")
    pathlib.Path(record["path"]).unlink()
    answer = await house.http.post(
        f"/api/sessions/{chat}/turns", json={"prompt": "[[fake]]", "file_ids": [record["id"]]}
    )
    assert answer.status_code == 404
    assert "notes.txt" in answer.json()["detail"]


async def test_an_upload_that_says_it_is_too_large_is_refused_before_it_comes(house, on_disk):
    chat = await house.chat()
    head = (
        f"POST /api/sessions/{chat}/files HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"X-AgentsDock-Token: {house.server.token}\r\nContent-Length: 99999999999999\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    ).encode()
    async with await house.connect() as stream:
        await stream.send_all(head)
        with trio.fail_after(3):
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 413")
    assert on_disk() == []


@pytest.fixture
def small(environment):
    return {**environment, "AGENTSDOCK_MAX_UPLOAD_BYTES": "1000000"}


async def test_a_file_over_the_limit_is_told_and_leftovers_go_at_the_next_start(small, tmp_path):
    state = tmp_path / "state"
    with running_server(state, small, token="files") as server:
        house = House(server)
        async with house.http:
            chat = await house.chat()
            await upload(house, chat, "a", b"x" * 1_000_000)
            too_large = await upload(house, chat, "b", b"x" * 20_000_000, status=413)
            assert "1000000" in too_large["detail"]
            assert len(list((state / "files").iterdir())) == 1
        server.stop()
    lost = state / "files" / "file_ffffffffffffffff"
    lost.mkdir()
    (lost / "part").write_bytes(b"x")
    with running_server(state, small, token="files") as server:
        house = House(server)
        async with house.http:
            with trio.fail_after(10):
                while lost.exists():
                    await trio.sleep(0.02)
            assert (await get(house, f"/api/sessions/{chat}/files"))["total"] == 1


async def test_large_files_and_stuck_readers_cost_no_memory(house):
    chat = await house.chat()
    piece = os.urandom(1 << 20)
    await upload(house, chat, "small.bin", piece)
    before = peak_memory(house.server.process.pid)

    async def form():
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="big"\r\n\r\n'
        for _ in range(64):
            yield piece
        yield b"\r\n--x--\r\n"

    path = f"/api/sessions/{chat}/files"
    answer = await house.http.post(path, content=form(), headers=FORM)
    assert answer.status_code == 200, answer.text
    url = f"{path}/{answer.json()['file']['id']}"
    async with httpx.AsyncClient(base_url=house.server.url, trust_env=False) as client:
        headers = {"X-AgentsDock-Token": house.server.token}
        async with client.stream("GET", url, headers=headers) as answer:
            assert answer.headers["content-length"] == str(64 << 20)
            for _ in range(50):  # The server has had time to send what nobody takes.
                await house.http.get("/healthz")
    size = 0
    async with house.http.stream("GET", url) as answer:
        async for data in answer.aiter_bytes():
            size += len(data)
    assert size == 64 << 20
    assert peak_memory(house.server.process.pid) - before < 24 << 20
