# Iterations in recordings of real engines and jobs, where those are at hand.
import gzip
import json
import os
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.reconstruct.iterations import (
    Activity,
    build_activity,
    recognize_by_anchor,
    recognize_by_kernel_names,
    recognize_by_period,
    recognize_iterations,
)

ROOT = Path(__file__).parents[4]
DATA = Path(os.environ.get("LLMPRISM_SHARED_DATA", ROOT.parent / "shared" / "data"))
HOST = {"user_annotation", "cpu_op", "python_function", "cuda_runtime"}
SAYS_ITSELF = re.compile(r"ProfilerStep|execute_\d+_context|step\[")


def find(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in LLMPRISM_SHARED_DATA")
    return path


def read_trace(name: str, categories: set[str], *, is_named: bool = True) -> Activity:
    events = json.loads(gzip.decompress(find(f"kineto/{name}.json.gz").read_bytes()))["traceEvents"]
    events = [e for e in events if e.get("ph") == "X" and e.get("cat") in categories]
    if not is_named:
        events = [e for e in events if not SAYS_ITSELF.match(e["name"])]
    threads: dict[object, int] = {}
    return build_activity(
        [e["name"] for e in events],
        np.array([e["ts"] * 1e3 for e in events], np.int64),
        np.array([e["dur"] * 1e3 for e in events], np.int64),
        [threads.setdefault((e["pid"], e["tid"]), len(threads)) for e in events],
    )


def read_ranges(name: str, query: str) -> dict[int, Activity]:
    """Return the ranges of each process, or the kernels of each device."""
    with sqlite3.connect(f"file:{find(f'nsys/{name}.sqlite')}?mode=ro", uri=True) as base:
        rows = base.execute(query).fetchall()
    base.close()
    own: dict[int, list[tuple[str, int, int, int]]] = {}
    for owner, *row in rows:
        own.setdefault(owner, []).append((row[0], row[1], row[2], row[3]))
    return {owner: build_activity(*map(list, zip(*own[owner], strict=True))) for owner in sorted(own)}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("vllm_prefill_decode_piecewise", [StepKind.MIXED]),
        ("sglang_decode_mi300x", [StepKind.DECODE]),
        ("hf_qwen_h100", [StepKind.UNKNOWN]),
        ("nccl_rank0_of_2", [StepKind.TRAIN] * 3),
        ("sampled_rank-0", [StepKind.TRAIN] * 2),
        ("sampled_rank-1", [StepKind.TRAIN] * 2),
        ("distributed_info_not_found", [StepKind.TRAIN]),
        ("rank_not_found", [StepKind.TRAIN]),
    ],
)
def test_iterations_that_frameworks_name_are_found_with_their_kind(name: str, kinds: list[StepKind]) -> None:
    assert recognize_by_anchor(read_trace(name, HOST)).iterations.kind.tolist() == kinds


@pytest.mark.parametrize("name", ["nccl_rank0_of_2", "sampled_rank-0", "sampled_rank-1"])
def test_iterations_are_found_where_no_framework_names_them(name: str) -> None:
    truth = recognize_by_anchor(read_trace(name, HOST)).iterations
    found = recognize_by_anchor(read_trace(name, HOST, is_named=False)).iterations
    assert len(found) == len(truth)
    # Each found one begins within the iteration of its number.
    assert np.all(found.begin_ns >= truth.begin_ns)
    assert np.all(found.begin_ns < truth.end_ns)


def test_iterations_are_found_by_kernels_alone() -> None:
    kernels = read_trace("nccl_rank0_of_2", {"kernel"})
    assert len(recognize_by_kernel_names(kernels).iterations) == 3
    by_times = recognize_by_period(kernels).iterations
    assert len(by_times) == 3
    assert np.median(np.diff(by_times.begin_ns)) == pytest.approx(221e6, rel=0.05)


@pytest.mark.parametrize("name", ["vllm_prefill_decode_piecewise", "sglang_decode_mi300x", "hf_qwen_h100"])
def test_layers_of_the_only_iteration_are_not_taken_for_iterations(name: str) -> None:
    host, kernels = read_trace(name, HOST, is_named=False), read_trace(name, {"kernel"})
    found = recognize_iterations(host, kernels)
    assert not found, found.why
    assert found.why


@pytest.mark.parametrize("name", ["h100_2gpu_1s", "mfu_2gpu_before"])
def test_window_shorter_than_an_iteration_holds_none(name: str) -> None:
    ranges = read_ranges(
        name,
        "SELECT globalTid >> 24, COALESCE(n.text, s.value, ''), start, COALESCE(end - start, -1), globalTid"
        " FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType = 59",
    )
    kernels = read_ranges(
        name,
        "SELECT deviceId, s.value, start, end - start, streamId"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName",
    )
    assert len(ranges) == len(kernels) == 2
    for host, device in zip(ranges.values(), kernels.values(), strict=True):
        assert not recognize_iterations(host, device)
