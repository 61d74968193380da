# The sentinel as our services have it: fed by the ledger stage, its news offered into the feed like requests
# of a receiver, its files beside the log.
from pathlib import Path

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import Durability
from otel_llmprism.pipeline.ports import Ingress
from otel_llmprism.service.control_book import ControlBook
from otel_llmprism.service.sentinel.build import SentinelService, Surroundings
from otel_llmprism.service.sentinel.config import SentinelConfig
from otel_llmprism.service.sentinel.switch import SentinelSwitch
from otel_llmprism.service.sentinel.wiring import build_parts
from otel_llmprism.service.settings import ProcessorConfig, ServiceConfig

FOLDER = "sentinel"


def build_sentinel(
    config: ProcessorConfig, ingress: Ingress, control: ControlBook, counters: Counters
) -> SentinelSwitch:
    """Return the sentinel's place; it starts nothing."""

    def build(own: SentinelConfig) -> SentinelService:
        folder = find_sentinel_folder(own, config.service)
        return SentinelService(own, Surroundings(ingress, control, counters, folder), build_parts())

    return SentinelSwitch(config.processors.sentinel, build)


def find_sentinel_folder(config: SentinelConfig, service: ServiceConfig) -> Path | None:
    """Return where models and open findings are kept: as told, else beside the log."""
    if config.directory:
        return Path(config.directory).expanduser()
    if service.durability is Durability.MEMORY:
        return None
    return service.log.directory.expanduser().parent / FOLDER
