# Whatever bytes stand in a file of step records: rows that hold, or a line that says why not.
import json
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.receivers.step_records import RejectedRows, read_step_records

CELLS = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=2),
)
COLUMNS = st.sampled_from(
    ["duration_ns", "start_ns", "kind", "engine", "instance", "decode_tokens", "kv_tokens", "images", "step"]
)


def check_file(raw: bytes) -> tuple[int, int]:
    """Return how many rows were kept and how many refused; every kept one must hold."""
    with tempfile.TemporaryDirectory() as folder:
        path, rejected = Path(folder) / "steps", RejectedRows()
        path.write_bytes(raw)
        kept = 0
        for batch in read_step_records(path, rejected):
            kept += len(batch)
            assert np.all(batch.cycle_ns > 0)
            assert len(batch.work.kind) == len(batch.start_ns) == len(batch.row) == len(batch)
            values = batch.work.values
            assert np.all(np.isnan(values) | ((values >= 0) & np.isfinite(values)))
            assert np.all(batch.engine < len(batch.engine_names))
            assert np.all(batch.instance < len(batch.instance_names))
        assert all("\n" not in line for line in rejected.describe())
        return kept, rejected.count


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_rows_that_hold_or_a_reason(raw: bytes) -> None:
    check_file(raw)
    check_file(b"duration_ns,decode_tokens\n" + raw)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(COLUMNS, CELLS, max_size=9), min_size=1, max_size=12))
def test_every_json_line_is_kept_or_refused(records: list[dict[str, object]]) -> None:
    raw = "\n".join(json.dumps(record) for record in records).encode()
    kept, refused = check_file(raw)
    told = [record["duration_ns"] for record in records if "duration_ns" in record]
    is_told = any(not isinstance(cell, list) for cell in told)
    assert kept + refused == (len(records) if is_told else 1)
