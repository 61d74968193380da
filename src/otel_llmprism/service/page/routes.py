# The page: one server-side template a view and the ES modules they load. Knows the query API by its address
# only; reads no store. Works offline: everything it loads comes from this process.
import importlib.util
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from otel_llmprism import __version__


@dataclass(frozen=True, slots=True)
class _View:
    """`name` is that of its template and of its module; `section` that of its link in the header."""

    path: str
    name: str
    title: str
    section: str


_TEMPLATES = Environment(
    loader=PackageLoader("otel_llmprism.service.page", "templates"), autoescape=True, auto_reload=False
)
_VIEWS = (
    _View("/", "search", "Traces", "traces"),
    _View("/trace/{trace_id}", "trace", "Trace", "traces"),
    _View("/engines", "engines", "Engines", "engines"),
    _View("/engine", "engine", "Engine", "engines"),
    _View("/findings", "findings", "Findings", "findings"),
    _View("/finding/{finding_id}", "finding", "Finding", "findings"),
    _View("/kinds", "kind-list", "Kinds of findings", "findings"),
    _View("/live", "live", "Live", "live"),
)
_CHART_LIBRARY = "plotly"


def build_routes() -> list[BaseRoute]:
    """Return the page's routes; the query API is expected beside them, under /api/."""
    static = StaticFiles(directory=str(files("otel_llmprism.service.page") / "static"))
    return [
        *(_build_view(view) for view in _VIEWS),
        Route("/static/vendor/chart.js", _send_chart_library),
        Mount("/static", static),
    ]


def _build_view(view: _View) -> Route:
    async def show(_request: Request) -> Response:
        html = _TEMPLATES.get_template(f"{view.name}.html").render(
            view=view.name, title=view.title, section=view.section, version=__version__
        )
        return HTMLResponse(html)

    return Route(view.path, show, methods=["GET"], name=view.name)


async def _send_chart_library(_request: Request) -> Response:
    path = find_chart_library()
    if path is None:
        raise HTTPException(404, "charts need the plotly package: pip install 'otel-llmprism[up]'")
    headers = {"Cache-Control": "private, max-age=86400"}
    return FileResponse(path, media_type="text/javascript", headers=headers)


def find_chart_library() -> Path | None:
    """Return the chart library's one JavaScript file without importing its Python package."""
    spec = importlib.util.find_spec(_CHART_LIBRARY)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    return None
