# A ring as the release before left it in memory-backed storage: four records of one request, none drained.
# Its bytes are committed and never made anew; what is expected is worked out by hand from its records.
from pathlib import Path

from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import MEMBERS_COMPLETE
from otel_llmprism.native.ring import RingReader
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

BEFORE = Path(__file__).parent / "ring-0.2.bin"


def test_ring_of_the_format_before_becomes_the_same_ledger(tmp_path: Path) -> None:
    path = tmp_path / "a.ring"
    path.write_bytes(BEFORE.read_bytes())
    path.chmod(0o600)
    reader = RingReader.open(path)
    counters = Counters()
    assembler = RingAssembler(counters, RingAssemblerConfig(expected_ranks=0))
    assembler.consume(reader.drain(100))
    assert reader.hook_time_ns == 200_000
    reader.close()
    tables = assembler.take(0)
    assert tables is not None
    assert counters.read_all() == []
    assert tables.steps.cycle_ns.tolist() == [40]
    assert tables.steps.flags.tolist() == [MEMBERS_COMPLETE]
    assert RequestTexts(tables.arrivals, tables.text).read_request_id(0) == "chat-a"
    assert tables.ends.output_tokens.tolist() == [1]
