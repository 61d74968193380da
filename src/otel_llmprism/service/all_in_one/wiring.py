# The whole of `up` on one screen. Receivers, feed and stages are those of the processor.
#
#   receivers --> feed (log, queue) --> stages --> fan-out --> store <-- query API, page
#                  ^                      |               \--> lane --> OTLP sink --> further backend
#                  \----- sentinel <-----/
from collections.abc import Mapping
from dataclasses import dataclass

from otel_llmprism.exporters.store.sink import StoreSink
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.dead_letters import DeadLetters
from otel_llmprism.pipeline.ingress import build_ingress
from otel_llmprism.pipeline.runner import Runner, ShutdownConfig
from otel_llmprism.service.all_in_one.fan_out import FanOut, Lane
from otel_llmprism.service.all_in_one.settings import UpSettings
from otel_llmprism.service.all_in_one.ui_server import UiServer
from otel_llmprism.service.control_book import ControlBook
from otel_llmprism.service.health import build_health_app
from otel_llmprism.service.reload_receivers import ReceiverSet
from otel_llmprism.service.wiring import build_listeners, build_sink, build_stages
from otel_llmprism.service.wiring_control import build_control_routes
from otel_llmprism.service.wiring_feed import to_dead_letters_config, to_ingress_config
from otel_llmprism.service.wiring_sentinel import build_sentinel


@dataclass(frozen=True, slots=True)
class UpParts:
    """What `up` starts, stops and asks for its ports."""

    receivers: ReceiverSet
    ui: UiServer
    dead_letters: DeadLetters
    runner: Runner
    counters: Counters


def build_up(settings: UpSettings, environment: Mapping[str, str]) -> UpParts:
    """Join everything, start nothing; raises ConfigError for what can never work."""
    config, counters = settings.config, Counters()
    feed = build_ingress(to_ingress_config(config.service), counters)
    dead_letters = DeadLetters(to_dead_letters_config(config.service), counters)
    store = StoreSink(settings.build_store_config(), counters, dead_letters=dead_letters)
    lanes: list[Lane] = []
    if settings.has_export:
        further = build_sink(config.exporters, environment, dead_letters, counters)
        lanes.append(Lane(further, config.exporters.otlp.in_flight.max_bytes))
    receivers = ReceiverSet(build_listeners(config.receivers, feed, counters))
    # Whoever can reach the page finds it ready: it listens last, when all else does.
    control = ControlBook(config.service.control, counters)
    sentinel = build_sentinel(config, feed, control, counters)
    relay = build_control_routes(control, settings.token, config.ui.endpoint)
    health = build_health_app(counters, lambda: "", relay)
    ui = UiServer(settings, counters, store.latest_metrics, health.routes, sentinel.view)
    runner = Runner(
        feed,
        list(build_stages(config, counters, sentinel).values()),
        FanOut([store, *lanes]),
        [receivers, sentinel, ui],
        counters=counters,
        shutdown=ShutdownConfig(total_s=config.service.shutdown_timeout_s),
    )
    return UpParts(receivers, ui, dead_letters, runner, counters)
