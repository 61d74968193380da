# What the resource of a ledger record says about its engine: names for people, and who its peers are.
from collections.abc import Mapping
from dataclasses import dataclass

from otel_llmprism.semconv import request as request_names
from otel_llmprism.semconv import resource as names

_PEER_KEYS = (
    names.SERVICE_NAMESPACE,
    names.SERVICE_NAME,
    names.JOB_ID,
    names.ENGINE_NAME,
    names.ENGINE_VERSION,
    request_names.GEN_AI_REQUEST_MODEL,
    "host.type",
    "host.cpu.model.name",
    "hw.model",
)
_REPLICA = "/dp"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    name: str = ""
    job: str = ""
    host: str = ""
    peers: str = ""  # equal for engines of the same model, hardware and configuration, as far as told


def read_facts(resource: Mapping[str, object], engine_id: str) -> EngineFacts:
    """Return what is known; without a service's name nobody is a peer but a replica."""
    told = {key: str(resource[key]) for key in _PEER_KEYS if resource.get(key)}
    base, replica, _ = engine_id.partition(_REPLICA)
    peers = "\0".join(f"{key}={told.get(key, '')}" for key in _PEER_KEYS)
    if names.SERVICE_NAME not in told:
        peers = f"{base}{_REPLICA}" if replica else ""
    return EngineFacts(
        name=str(resource.get(names.ENGINE_NAME, "")),
        job=str(resource.get(names.JOB_ID, "")),
        host=str(resource.get(names.HOST_NAME, "")),
        peers=peers,
    )
