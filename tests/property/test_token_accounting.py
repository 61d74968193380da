# Whatever a scheduler does, the tokens that the ledger adds up are those that were scheduled: through the
# running set, the ring's records, chunks of any size, their bytes and back. Dropped records cost their step.
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.model.chunks import cut_chunk_members
from otel_llmprism.model.member_sums import list_steps_of, sum_request_tokens, sum_step_tokens
from otel_llmprism.model.members import RunningState
from otel_llmprism.model.steps import MEMBERS_COMPLETE
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ledger import decode_chunks
from otel_llmprism.native.ledger_layout import ChunkAnchor, parse_anchor
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_records import derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger_tables import build_chunk_table, wrap_columns
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

NAMES = [f"request-{number}" for number in range(8)]
Step = tuple[int, dict[str, tuple[int, bool]], list[str], bool, bool]  # lane, tokens, left, lost, cut after

steps_of_a_run = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.dictionaries(
            st.sampled_from(NAMES), st.tuples(st.sampled_from([1, 1, 1, 2, 9000]), st.booleans())
        ),
        st.lists(st.sampled_from(NAMES), max_size=2),
        st.sampled_from([False, False, False, True]),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


def record_step(
    step: int, lane: int, tokens: dict[str, int], prefill: set[str], members: Sequence[tuple[int, int, int]]
) -> bytes:
    prompt = sum(tokens[name] for name in prefill)
    return records.pack_step_scheduled(
        step, 10 * step, 10 * step + 1, 2, 0, 0.0, len(tokens), prompt, sum(tokens.values()) - prompt, 0,
        0, 0, 0, 0.0, 0, 1, members, lane,
    ) + records.pack_step_output(step, 10 * step + 5, 1, 1, 1)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(steps_of_a_run)
def test_every_scheduled_token_is_found_again(run: list[Step]) -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=0))
    booked: dict[int, Counter[str]] = {}
    members_of: dict[int, dict[int, int]] = {}
    chunks = []
    for step, (lane, scheduled, left, is_lost, is_cut) in enumerate(run):
        running.leave(left)
        tokens = {name: count for name, (count, _) in scheduled.items()}
        prefill = {name for name, (_, is_prompt) in scheduled.items() if is_prompt}
        record = record_step(step, lane, tokens, prefill, running.diff(tokens, prefill, lane))
        if is_lost:
            running.repeat_all()
            continue
        assembler.consume(record)
        members_of[step] = {derive_request_handle(name): count for name, count in tokens.items()}
        for name, count in tokens.items():
            book = booked.setdefault(derive_request_handle(name), Counter())
            book.update(steps=1, prefill=count * (name in prefill), decode=count * (name not in prefill))
        if is_cut and (tables := assembler.take(0)) is not None:
            chunks.append(encode_chunk(tables, ChunkAnchor(0, 0, 0, 0)))
    if (tables := assembler.take(0)) is not None:
        chunks.append(encode_chunk(tables, ChunkAnchor(0, 0, 0, 0)))
    check_sums(chunks, booked, members_of)


def check_sums(
    chunks: list[bytes], booked: dict[int, Counter[str]], members_of: dict[int, dict[int, int]]
) -> None:
    decoded = decode_chunks(chunks)
    tables = wrap_columns(decoded.columns)
    places = build_chunk_table(range(len(chunks)), [parse_anchor(chunk) for chunk in chunks], decoded.rows)
    assert tables.steps.step.tolist() == sorted(members_of)
    assert all(flags & MEMBERS_COMPLETE for flags in tables.steps.flags.tolist())
    found: dict[int, Counter[str]] = {}
    steps_found: Counter[int] = Counter()
    for chunk in range(len(chunks)):
        own = cut_chunk_members(tables, places, chunk)
        sums = sum_request_tokens(own.lane_of_step, own.members, own.running)
        columns = (sums.handle, sums.steps, sums.prefill_tokens, sums.decode_tokens)
        for handle, steps, prefill, decode in zip(*(column.tolist() for column in columns), strict=True):
            found.setdefault(handle, Counter()).update(steps=steps, prefill=prefill, decode=decode)
            rows = list_steps_of(handle, own.lane_of_step, own.members, own.running)
            steps_found[handle] += len(rows)
        rows_of = slice(own.first_step_row, own.first_step_row + len(own.lane_of_step))
        step_sums = sum_step_tokens(own.lane_of_step, own.members, own.running)
        assert step_sums.requests.tolist() == tables.steps.requests[rows_of].tolist()
        state = RunningState(own.running)
        for row, step in enumerate(tables.steps.step[rows_of].tolist()):
            begin, end = own.members.step_row.searchsorted([row, row + 1]).tolist()
            state.apply(own.members, slice(begin, end))
            here = state.list_members(int(own.lane_of_step[row]), own.members, slice(begin, end))
            assert dict(zip(here.handle.tolist(), here.tokens.tolist(), strict=True)) == members_of[step]
    nothing: Counter[str] = Counter()
    for handle in booked.keys() | found.keys():
        assert found.get(handle, nothing) == booked.get(handle, nothing)
        assert steps_found[handle] == booked.get(handle, nothing)["steps"]
