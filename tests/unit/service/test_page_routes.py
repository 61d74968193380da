import asyncio
import re
from importlib.resources import files

import pytest
from starlette.applications import Starlette
from starlette.types import Message

from otel_llmprism.service.page import routes


def fetch(path: str) -> tuple[int, bytes]:
    sent: list[Message] = []

    async def ask() -> None:
        request: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if not request:
                await asyncio.Event().wait()  # this client never hangs up
            return request.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost")],
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
        }
        await Starlette(routes=routes.build_routes())(scope, receive, send)

    asyncio.run(ask())
    body = b"".join(message.get("body", b"") for message in sent)
    return int(sent[0]["status"]), body


@pytest.mark.parametrize(("path", "module"), [("/", "search"), ("/trace/00", "trace"), ("/live", "live")])
def test_every_view_loads_its_own_module(path: str, module: str) -> None:
    status, body = fetch(path)
    assert status == 200
    assert f"/static/{module}.js".encode() in body


def test_templates_have_no_inline_script_or_style() -> None:
    for path in ("/", "/trace/00", "/live"):
        _, body = fetch(path)
        assert not re.search(rb"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", body)


def test_nothing_is_loaded_from_elsewhere() -> None:
    static = files("otel_llmprism.service.page") / "static"
    for source in static.iterdir():
        text = source.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn", text), source.name


def test_modules_import_only_modules_that_are_there() -> None:
    static = files("otel_llmprism.service.page") / "static"
    names = {source.name for source in static.iterdir()}
    for source in static.iterdir():
        imported = set(re.findall(r'from "\./([a-z-]+\.js)"', source.read_text(encoding="utf-8")))
        assert imported <= names, source.name


def test_chart_library_is_served_from_its_package() -> None:
    status, body = fetch("/static/vendor/chart.js")
    assert status == 200
    assert len(body) > 1_000_000


def test_page_says_what_to_install_when_the_chart_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "find_chart_library", lambda: None)
    status, body = fetch("/static/vendor/chart.js")
    assert status == 404
    assert b"pip install" in body


def test_static_files_outside_the_folder_are_not_served() -> None:
    assert fetch("/static/../routes.py")[0] == 404
