# The page and the query API as one guarded server over the store. A Source: listens once the store is
# open, stops first.
import logging
import socket
import time
from collections.abc import Sequence

from starlette.routing import BaseRoute

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.connection_pool import ConnectionPool
from otel_llmprism.exporters.store.database import FILE_NAME
from otel_llmprism.exporters.store.latest_metrics import LatestMetrics
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, choose_indexed_keys
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.asgi_listener import AsgiListener
from otel_llmprism.receivers.listen_address import parse_listen_address
from otel_llmprism.service.all_in_one.settings import UpSettings
from otel_llmprism.service.query.app import Apis, build_app
from otel_llmprism.service.query.guard import Guard, describe_hosts
from otel_llmprism.service.query.jaeger_routes import JaegerApi
from otel_llmprism.service.query.live import LiveNumbers
from otel_llmprism.service.query.llmprism_routes import LlmprismApi
from otel_llmprism.service.query.sentinel_routes import SentinelApi
from otel_llmprism.service.query.sentinel_view import NoSentinel, SentinelView

_LOGGER = logging.getLogger(__name__)


class UiServer:
    """Closes its readers when it stops."""

    def __init__(
        self,
        settings: UpSettings,
        counters: Counters,
        latest_metrics: LatestMetrics,
        more_routes: Sequence[BaseRoute],
        sentinel: SentinelView | None = None,
    ) -> None:
        address = parse_listen_address(settings.config.ui.endpoint)
        self._pool = ConnectionPool(settings.data / FILE_NAME)
        apis = _build_apis(settings, self._pool, counters, latest_metrics, sentinel or NoSentinel())
        app = build_app(apis, [*more_routes, *load_page()])
        hosts = describe_hosts(address.host, settings.config.ui.allowed_hosts, [socket.gethostname()])
        self._listener = AsgiListener(Guard(app, token=settings.token, **hosts), address, name="ui")

    @property
    def port(self) -> int:
        return self._listener.port

    def start(self) -> None:
        """Listen; raises ListenError with the mend."""
        self._listener.start()

    def stop(self, deadline_ns: int) -> None:
        self._listener.stop(deadline_ns)
        self._pool.close()


def load_page() -> Sequence[BaseRoute]:
    """Return the page's routes; none, and a word in the log, where its packages are missing."""
    try:
        from otel_llmprism.service.page.routes import build_routes  # noqa: PLC0415 - needs the extra [up]
    except ModuleNotFoundError as error:
        _LOGGER.warning("no page, only the query API: %s; pip install 'otel-llmprism[up]'", error)
        return ()
    return build_routes()


def _build_apis(
    settings: UpSettings,
    pool: ConnectionPool,
    counters: Counters,
    latest_metrics: LatestMetrics,
    sentinel: SentinelView,
) -> Apis:
    store = settings.config.store
    keys = choose_indexed_keys(store.index_attributes, with_content=store.index_content)
    reader, catalog = StoreReader(pool, {*keys, *RESOURCE_KEYS}), StoreCatalog(pool)
    live = LiveNumbers(counters, catalog, latest_metrics, time.monotonic_ns)
    return Apis(
        JaegerApi(reader, catalog, time.time_ns, store.index_content),
        LlmprismApi(reader, catalog, live, time.time_ns, store.index_content),
        SentinelApi(sentinel, reader, time.time_ns),
    )
