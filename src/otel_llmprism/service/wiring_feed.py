# The service section of the file -> the settings of acceptance and of dead letters.
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.pipeline.dead_letters import DeadLettersConfig
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig, LogConfig
from otel_llmprism.pipeline.log.folder import SEGMENT_SUFFIX
from otel_llmprism.service.settings import ServiceConfig

DEAD_LETTERS_FOLDER = "dead-letters"


def to_ingress_config(config: ServiceConfig) -> IngressConfig:
    """Return how requests are accepted; raises ConfigError for bounds that cannot work."""
    is_in_memory = config.durability is Durability.MEMORY
    try:
        log = LogConfig(
            config.log.directory.expanduser(),
            config.log.max_bytes,
            config.log.segment_bytes,
            config.log.format_version,
        )
        return IngressConfig(
            durability=config.durability,
            queue_bytes=config.queue.max_bytes,
            queue_requests=config.queue.max_requests,
            log=None if is_in_memory else log,
            replay_metrics_max_age_s=config.log.replay_metrics_max_age_s,
        )
    except ValueError as error:
        raise ConfigError(f"service: {error}") from error


def to_dead_letters_config(config: ServiceConfig) -> DeadLettersConfig:
    """Return where refused requests go: beside the log; nowhere, but counted, without one."""
    if config.durability is Durability.MEMORY:
        return DeadLettersConfig()
    return DeadLettersConfig(
        config.log.directory.expanduser() / DEAD_LETTERS_FOLDER,
        is_synced=config.durability is Durability.HOST,
    )


def measure_log(config: ServiceConfig) -> int:
    """Return the bytes of requests that a stopped processor left in its log."""
    folder = config.log.directory.expanduser()
    return sum(path.stat().st_size for path in folder.glob(f"*{SEGMENT_SUFFIX}"))
