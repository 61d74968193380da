from otel_llmprism.native.run_folder import RunDescription
from otel_llmprism.service.exporter_process.resource import build_resource, parse_resource_attributes
from otel_llmprism.service.exporter_process.settings import read_exporter_settings

RUN = RunDescription("engine-1", "ab" * 16, "", "vllm", "0.33.0", "m", "chat", "sample", 42, 7)


def test_resource_names_engine_run_host_and_process() -> None:
    resource = build_resource(RUN, {}, "node-7", "1.2")
    assert resource["service.name"] == "vllm"
    assert resource["host.name"] == "node-7"
    assert resource["process.pid"] == 42
    assert resource["llmprism.engine.id"] == resource["service.instance.id"] == "engine-1"
    assert resource["llmprism.engine.run"] == "ab" * 16
    assert resource["llmprism.job.id"] == "vllm"


def test_service_name_wins_over_resource_attributes_and_both_make_the_job() -> None:
    environment = {
        "OTEL_SERVICE_NAME": "chat",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,service.namespace=team%20a,k8s.pod.name=p",
    }
    resource = build_resource(RUN, environment, "node", "1")
    assert resource["service.name"] == "chat"
    assert resource["k8s.pod.name"] == "p"
    assert resource["llmprism.job.id"] == "team a/chat"


def test_ids_of_the_engine_cannot_be_overruled_by_accident() -> None:
    environment = {"OTEL_RESOURCE_ATTRIBUTES": "llmprism.engine.id=x"}
    assert build_resource(RUN, environment, "node", "1")["llmprism.engine.id"] == "engine-1"


def test_malformed_pieces_are_left_out() -> None:
    assert parse_resource_attributes("a=1,,b,=c, d = e ,f=g=h") == {"a": "1", "d": "e", "f": "g=h"}


def test_settings_follow_the_standard_variables_and_nonsense_means_the_default() -> None:
    settings = read_exporter_settings(
        {
            "OTEL_METRIC_EXPORT_INTERVAL": "250",
            "OTEL_LLMPRISM_LEDGER": "local",
            "OTEL_TRACES_EXPORTER": "none",
        }
    )
    assert (settings.metric_s, settings.ships_ledger, settings.sends_traces) == (0.25, False, False)
    default = read_exporter_settings({})
    for text in ("soon", "-1", "0", "nan", "1e99"):
        assert read_exporter_settings({"OTEL_METRIC_EXPORT_INTERVAL": text}) == default
    assert (default.metric_s, default.ships_ledger, default.sends_metrics) == (5.0, True, True)
