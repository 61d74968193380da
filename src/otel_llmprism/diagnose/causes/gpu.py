# GPUs that are held back, shared, full, or at the end of busy buses. Works where NVML told something.
from collections.abc import Iterator

from otel_llmprism.diagnose.causes.case import Candidate, Case, Change
from otel_llmprism.diagnose.kinds import FindingKind, SubjectType
from otel_llmprism.model.findings import Evidence, Subject
from otel_llmprism.semconv import gpu as names

_MIN_THROTTLED = 0.05  # of the time, or of the clock
_MIN_FOREIGN_BYTES = 64 << 20  # less is a context without work
_MIN_UTILIZATION = 0.1
_FULL = 0.97
_MIN_GROWTH = 1.3  # of a bus's traffic
_HINT = 0.4  # of the excess, at most, that circumstances without a measured time may explain


def find_gpu_causes(case: Case) -> Iterator[Candidate]:
    """Yield what is wrong with each GPU."""
    for node, host in case.facts.hosts.items():
        prefix = f"{names.GPU_CLOCK}/"
        gpus = {name.split("/")[1] for name in host.ring.list_names(prefix)}
        gpus |= {name.split("/")[1] for name in host.ring.list_names(f"{names.GPU_UTILIZATION}/")}
        for gpu in sorted(gpus):
            yield from _find_throttle(case, node, gpu)
            yield from _find_contention(case, node, gpu)
            yield from _find_full_memory(case, node, gpu)
            yield from _find_bus(case, node, gpu)


def _find_throttle(case: Case, node: str, gpu: str) -> Iterator[Candidate]:
    held = _collect(case, node, f"{names.GPU_THROTTLED}/{gpu}/", "1")
    held += _collect(case, node, f"{names.GPU_THROTTLED_TIME}/{gpu}/", "s/s")
    clock = case.compare_host(node, f"{names.GPU_CLOCK}/{gpu}/sm", unit="Hz")
    reasons = [change for change in held if change.is_notable(_MIN_THROTTLED)]
    drop = 1 - clock.observed / clock.expected if clock is not None and clock.expected > 0 else 0.0
    if not reasons or (clock is not None and drop < _MIN_THROTTLED):
        return  # a power cap that never lowers the clock costs nothing
    # Without a clock: held back means slower by an unknown part of the time it lasted.
    slower = drop / max(0.05, 1 - drop) if clock is not None else _HINT * max(one.delta for one in reasons)
    busy = case.sum("expected_s") / case.wall_s
    evidence = [one.to_evidence() for one in (*reasons, *([clock] if clock is not None else []))]
    yield _build(FindingKind.GPU_THROTTLE, gpu, case.share(slower * busy), evidence)


def _find_contention(case: Case, node: str, gpu: str) -> Iterator[Candidate]:
    foreign = case.compare_host(node, f"gpu.foreign_bytes/{gpu}", default=0.0, unit="By")
    busy = case.compare_host(node, f"{names.GPU_UTILIZATION}/{gpu}/general", unit="1")
    if foreign is None or not foreign.is_notable(_MIN_FOREIGN_BYTES):
        return
    evidence = [foreign.to_evidence("memory of processes that are not the engine's")]
    rise = busy.delta if busy is not None else 0.0
    if busy is not None:
        evidence.append(busy.to_evidence())
    is_busier = busy is not None and (busy.is_notable(_MIN_UTILIZATION) or busy.observed > 0.9)
    share = max(_HINT, case.share(rise)) if is_busier else _HINT / 2
    yield _build(FindingKind.GPU_CONTENTION, gpu, share, evidence)


def _find_full_memory(case: Case, node: str, gpu: str) -> Iterator[Candidate]:
    usage = case.compare_host(node, f"{names.GPU_MEMORY_UTILIZATION}/{gpu}", default=1.0, unit="1")
    if usage is not None and usage.observed > _FULL and usage.expected < _FULL - 0.02:
        yield _build(FindingKind.GPU_MEMORY_PRESSURE, gpu, _HINT, [usage.to_evidence()])


def _find_bus(case: Case, node: str, gpu: str) -> Iterator[Candidate]:
    buses = {
        FindingKind.PCIE_CONTENTION: (f"{names.GPU_IO}/{gpu}/", f"{names.GPU_PCIE_THROUGHPUT}/{gpu}/"),
        FindingKind.NVLINK_CONTENTION: (f"{names.GPU_NVLINK_IO}/{gpu}/",),
    }
    # Traffic grows with the work of the steps; only what it does not explain is somebody else's.
    work = case.compare("tokens", "busy_s", "1/s")
    growth = max(1.0, work.observed / work.expected) if work is not None and work.expected > 0 else 1.0
    for kind, prefixes in buses.items():
        changes = [one for prefix in prefixes for one in _collect(case, node, prefix, "By/s")]
        busier = [one for one in changes if one.expected > 0 and one.is_notable(0.0)
                  and one.observed > _MIN_GROWTH * growth * one.expected]  # fmt: skip
        if busier:
            yield _build(kind, gpu, _HINT, [one.to_evidence() for one in busier])


def _collect(case: Case, node: str, prefix: str, unit: str) -> list[Change]:
    found = case.facts.hosts[node].ring.list_names(prefix)
    changes = (case.compare_host(node, name, unit=unit) for name in found)
    return [change for change in changes if change is not None]


def _build(kind: FindingKind, gpu: str, share: float, evidence: list[Evidence]) -> Candidate:
    return Candidate(kind, Subject(SubjectType.GPU, gpu), share, tuple(evidence))
