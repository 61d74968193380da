# The whole flow of the processor on one screen: who gives what to whom. Everything else is a component.
#
#   receivers --> feed (log, queue) --> ledger --> hold --> verdicts --> stamp --> end --> sink --> backend
#                  ^                      |                   ^                     |        \--> dead letters
#                  |                      v                   |        beside: input ends here
#                  \-------------------- sentinel ------------/
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from otel_llmprism.exporters.sink import OtlpSink
from otel_llmprism.exporters.sink_delivery import Delivery
from otel_llmprism.native.otlp import NO_KEYS
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.dead_letters import DeadLetters
from otel_llmprism.pipeline.ingress import Feed, build_ingress
from otel_llmprism.pipeline.ports import Ingress
from otel_llmprism.pipeline.runner import Runner, ShutdownConfig
from otel_llmprism.receivers.otlp_grpc import OtlpGrpcReceiver
from otel_llmprism.receivers.otlp_http import OtlpHttpReceiver
from otel_llmprism.service.control_book import ControlBook
from otel_llmprism.service.reload_receivers import Listener, ReceiverSet, to_listener
from otel_llmprism.service.reload_switch import BatchStage, PassOn, SwitchSink, SwitchStage
from otel_llmprism.service.sentinel.enrich_stage import CLAIMED
from otel_llmprism.service.sentinel.switch import SentinelSwitch
from otel_llmprism.service.settings import ExportersConfig, Mode, ProcessorConfig, ReceiversConfig
from otel_llmprism.service.wiring_client import build_client
from otel_llmprism.service.wiring_feed import to_dead_letters_config, to_ingress_config
from otel_llmprism.service.wiring_sentinel import build_sentinel
from otel_llmprism.service.wiring_stages import (
    EndHere,
    TakeMarkOff,
    build_hold,
    build_ledger_stage,
    build_stamp,
    build_verdicts,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the processor starts, stops and reloads."""

    feed: Feed
    stages: Mapping[str, SwitchStage]
    sink: SwitchSink
    sentinel: SentinelSwitch
    control: ControlBook
    receivers: ReceiverSet
    dead_letters: DeadLetters
    runner: Runner


def build_parts(config: ProcessorConfig, environment: Mapping[str, str], counters: Counters) -> Parts:
    """Join everything, start nothing; raises ConfigError for what can never work."""
    feed = build_ingress(to_ingress_config(config.service), counters)
    dead_letters = DeadLetters(to_dead_letters_config(config.service), counters)
    control = ControlBook(config.service.control, counters)
    sentinel = build_sentinel(config, feed, control, counters)
    stages = {name: SwitchStage(stage) for name, stage in build_stages(config, counters, sentinel).items()}
    sink = SwitchSink(build_sink(config.exporters, environment, dead_letters, counters))
    receivers = ReceiverSet(build_listeners(config.receivers, feed, counters))
    runner = Runner(
        feed,
        list(stages.values()),
        sink,
        [receivers, sentinel],
        counters=counters,
        shutdown=ShutdownConfig(total_s=config.service.shutdown_timeout_s),
    )
    return Parts(feed, stages, sink, sentinel, control, receivers, dead_letters, runner)


def build_stages(
    config: ProcessorConfig, counters: Counters, sentinel: SentinelSwitch
) -> dict[str, BatchStage]:
    """Return the stages in their order; the places are the same in every configuration."""
    is_inline, is_watching = config.service.mode is Mode.INLINE, config.processors.sentinel.enabled
    claimed = CLAIMED if is_watching else ()
    return {
        "ledger": build_ledger_stage(
            counters, sentinel if is_watching else None, is_forwarding=config.service.ledger.forward
        ),
        "hold": build_hold(config.processors.hold, counters, claimed) if is_inline else PassOn(),
        "verdicts": build_verdicts(sentinel, counters) if is_inline and is_watching else PassOn(),
        "stamp": build_stamp(config.processors.stamp) if is_inline else PassOn(),
        "end": TakeMarkOff() if is_inline else EndHere(counters),
    }


def build_sink(
    config: ExportersConfig, environment: Mapping[str, str], dead_letters: DeadLetters, counters: Counters
) -> OtlpSink:
    client = build_client(config.otlp, environment)
    delivery = Delivery(client, config.otlp.retry, dead_letters, counters)
    return OtlpSink(config.otlp.in_flight, delivery, client.close, counters)


def build_listeners(config: ReceiversConfig, ingress: Ingress, counters: Counters) -> dict[str, Listener]:
    protocols = config.otlp.protocols
    listeners = {}
    if protocols.grpc is not None:
        build_grpc = partial(OtlpGrpcReceiver, protocols.grpc, ingress, counters, NO_KEYS)
        listeners["otlp_grpc"] = to_listener(protocols.grpc, build_grpc)
    if protocols.http is not None:
        build_http = partial(OtlpHttpReceiver, protocols.http, ingress, counters, NO_KEYS)
        listeners["otlp_http"] = to_listener(protocols.http, build_http)
    return listeners
