# A new configuration on a running processor: everything that can fail happens before anything changes.
# Old and new configuration come in; either all of the new one runs, or all of the old one.
import time
from collections.abc import Mapping

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.service.settings import OtlpExporterConfig, ProcessorConfig
from otel_llmprism.service.wiring import Parts, build_listeners, build_sink, build_stages

# What the old connection to the backend may take to finish; what it does not finish goes to the new one.
_SINK_GRACE_NS = 5_000_000_000


def apply_config(
    parts: Parts,
    old: ProcessorConfig,
    new: ProcessorConfig,
    environment: Mapping[str, str],
    counters: Counters,
) -> None:
    """Make `new` run; raises ConfigError or what a receiver raises, with everything as it was."""
    _check_restart(old, new)
    sink = None
    if old.exporters != new.exporters or _reads_elsewhere(new.exporters.otlp):
        sink = build_sink(new.exporters, environment, parts.dead_letters, counters)
    stages = None
    if _list_stage_settings(old) != _list_stage_settings(new):
        stages = build_stages(new, counters, parts.sentinel)
    try:
        parts.receivers.replace(build_listeners(new.receivers, parts.feed, counters))
    except BaseException:
        if sink is not None:
            sink.stop(0)
        raise
    if old.processors.sentinel != new.processors.sentinel:
        parts.sentinel.switch(new.processors.sentinel)
    if sink is not None:
        parts.sink.switch(sink, time.monotonic_ns() + _SINK_GRACE_NS)
    if stages is not None:
        for name, stage in stages.items():
            parts.stages[name].switch(stage)


def _list_stage_settings(config: ProcessorConfig) -> tuple[object, ...]:
    # New stages forget what the old ones remember, so they are not made without need.
    return config.processors, config.service.mode, config.service.ledger


def _check_restart(old: ProcessorConfig, new: ProcessorConfig) -> None:
    """Refuse what cannot change under accepted data."""
    before, after = old.service, new.service
    for key in ("durability", "log", "queue", "health", "control", "shutdown_timeout_s"):
        if getattr(before, key) != getattr(after, key):
            raise ConfigError(
                f"service.{key.removesuffix('_s')} cannot change while the service runs: restart it for that"
            )


def _reads_elsewhere(config: OtlpExporterConfig) -> bool:
    """Tell whether the client depends on more than the section: certificates, or the environment."""
    return not config.endpoint or bool(config.tls.ca_file or config.tls.cert_file)
