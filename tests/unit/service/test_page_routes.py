import asyncio
import re
from importlib.resources import files

import pytest
from starlette.applications import Starlette
from starlette.types import Message

from otel_llmprism.diagnose.kinds import FindingKind
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


VIEWS = [
    ("/", "search", "Traces"),
    ("/trace/00", "trace", "Traces"),
    ("/engines", "engines", "Engines"),
    ("/engine", "engine", "Engines"),
    ("/findings", "findings", "Findings"),
    ("/finding/f-1", "finding", "Findings"),
    ("/kinds", "kind-list", "Findings"),
    ("/live", "live", "Live"),
]


@pytest.mark.parametrize(("path", "module"), [(path, module) for path, module, _ in VIEWS])
def test_every_view_loads_its_own_module(path: str, module: str) -> None:
    status, body = fetch(path)
    assert status == 200
    assert f"/static/{module}.js".encode() in body


@pytest.mark.parametrize(("path", "section"), [(path, section) for path, _, section in VIEWS])
def test_the_header_says_where_one_is(path: str, section: str) -> None:
    _, body = fetch(path)
    (current,) = re.findall(rb'aria-current="page">([A-Za-z]+)', body)
    assert current.decode() == section


def test_templates_have_no_inline_script_or_style() -> None:
    for path, *_ in VIEWS:
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


def test_elements_that_modules_ask_for_are_in_their_template() -> None:
    page = files("otel_llmprism.service.page")
    base = (page / "templates" / "base.html").read_text(encoding="utf-8")
    for _, module, _ in VIEWS:
        wanted = re.findall(
            r'byId\("([a-z-]+)"\)', (page / "static" / f"{module}.js").read_text(encoding="utf-8")
        )
        template = base + (page / "templates" / f"{module}.html").read_text(encoding="utf-8")
        assert {name for name in wanted if f'id="{name}"' not in template} == set(), module


def test_every_kind_of_finding_is_explained() -> None:
    text = (files("otel_llmprism.service.page") / "static" / "kinds.js").read_text(encoding="utf-8")
    explained = set(re.findall(r"^  ([a-z_]+): \{", text, re.MULTILINE))
    measured = re.findall(r"^  ([a-z_]+): \{\n.*\n    measured:", text, re.MULTILINE)
    assert set(measured) == {str(kind) for kind in FindingKind}
    assert {"slow_stage", "operator_regression"} <= explained


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
