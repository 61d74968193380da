# Who we speak for: the resource of every request, from the run's description and the standard
# variables. Environment and host facts come in.
from collections.abc import Mapping
from urllib.parse import unquote

from otel_llmprism.native.run_folder import RunDescription
from otel_llmprism.semconv import resource as names

_SDK = {
    "telemetry.sdk.name": "otel-llmprism",
    "telemetry.sdk.language": "python",
}


def build_resource(
    run: RunDescription, environment: Mapping[str, str], host_name: str, version: str
) -> dict[str, str | int | float | bool]:
    """Return the resource; OTEL_SERVICE_NAME wins over OTEL_RESOURCE_ATTRIBUTES, both over defaults."""
    given = parse_resource_attributes(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if service := environment.get("OTEL_SERVICE_NAME", "").strip():
        given[names.SERVICE_NAME] = service
    resource: dict[str, str | int | float | bool] = {
        names.SERVICE_NAME: run.engine_name or "unknown_service",
        names.SERVICE_INSTANCE_ID: run.engine_id,
        names.HOST_NAME: host_name,
        names.PROCESS_PID: run.starter_pid,
        **_SDK,
        "telemetry.sdk.version": version,
        **given,
    }
    return resource | {
        names.ENGINE_ID: run.engine_id,
        names.ENGINE_RUN: run.run,
        names.ENGINE_NAME: run.engine_name,
        names.ENGINE_VERSION: run.engine_version,
        names.JOB_ID: run.job_id or derive_job_id(resource),
    }


def derive_job_id(resource: Mapping[str, str | int | float | bool]) -> str:
    """Return service.namespace/service.name, or the name alone."""
    namespace, name = str(resource.get(names.SERVICE_NAMESPACE, "")), str(resource[names.SERVICE_NAME])
    return f"{namespace}/{name}" if namespace else name


def parse_resource_attributes(text: str) -> dict[str, str]:
    """Read `key=value,key=value` with percent-encoded values; pieces without a key are left out."""
    pairs = (piece.partition("=") for piece in text.split(","))
    return {key.strip(): unquote(value.strip()) for key, equals, value in pairs if equals and key.strip()}
