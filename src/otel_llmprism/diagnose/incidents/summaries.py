# One sentence about an incident that a person can act on, with its numbers.
from otel_llmprism.diagnose.causes.case import Candidate, Case
from otel_llmprism.diagnose.kinds import Domain, FindingKind, SubjectType
from otel_llmprism.model.findings import Evidence

_SENTENCES = {
    FindingKind.SLOW_WORKER: "Rank {subject} arrives last and the other ranks wait for it",
    FindingKind.SLOW_LINK: "The exchange over {subject} takes longer though its ranks arrive in time",
    FindingKind.COMMUNICATION_DELAY: "Exchanges among ranks {subject} take longer though all arrive in time",
    FindingKind.GPU_THROTTLE: "GPU {subject} is held back by its clocks",
    FindingKind.GPU_CONTENTION: "Another process works on GPU {subject}",
    FindingKind.GPU_MEMORY_PRESSURE: "The memory of GPU {subject} is full",
    FindingKind.CPU_CONTENTION: "Threads of the engine wait for a processor ({where})",
    FindingKind.CPU_THROTTLE: "A CPU quota holds back {where}",
    FindingKind.MEMORY_PRESSURE: "The engine stalls for want of memory ({where})",
    FindingKind.PCIE_CONTENTION: "Something else uses the PCIe bus of GPU {subject}",
    FindingKind.NVLINK_CONTENTION: "Something else uses the NVLink of GPU {subject}",
    FindingKind.SCHEDULER_DELAY: "The scheduler of {subject} takes longer between and before steps",
    FindingKind.FRONTEND_DELAY: "The front end of {subject} holds requests longer than usual",
    FindingKind.OVERLOAD: "More is asked of {subject} than it serves: its queue does not drain",
    FindingKind.KV_PRESSURE: "The KV cache of {subject} is too small for its load",
    FindingKind.DATA_STALL: "Training steps of {subject} wait for data",
    FindingKind.STEP_REGRESSION: "Steps of {subject} are slower than their work explains, cause unknown",
    FindingKind.HANG: "{subject} has work in flight and produces no output",
}


def write_summary(candidate: Candidate, case: Case, share: float) -> str:
    """Return the sentence: what, how much of the time it costs, and the number that says so."""
    subject = candidate.subject
    where = {
        SubjectType.RANK: f"rank {subject.id}",
        SubjectType.HOST: f"others run on host {subject.id}",
        SubjectType.ENGINE: f"engine {subject.id}",
    }.get(SubjectType(subject.type), subject.id)
    sentence = _SENTENCES[candidate.kind].format(subject=subject.id, where=where)
    number = f"; {write_number(candidate.evidence[0])}" if candidate.evidence else ""
    return f"{sentence}: {write_loss(case, share)}{number}."


def write_loss(case: Case, share: float) -> str:
    """Return how much is lost, in words that fit whose time it is."""
    if case.domain is Domain.STEPS:
        busy_s, expected_s = case.sum("scored_s"), case.sum("expected_s")
        ratio = busy_s / expected_s if expected_s > 0 else 1.0
        return f"steps take {ratio:.2f}x of expected, {share:.0%} of busy time is lost"
    if case.domain is Domain.SILENCE:
        return f"nothing for {(case.end_ns - case.onset_ns) / 1e9:.0f} s"
    return f"{share:.0%} of the requests' time is lost"


def write_number(evidence: Evidence) -> str:
    unit = "" if evidence.unit == "1" else f" {evidence.unit}"
    return f"{evidence.signal} {evidence.observed:.3g}{unit} instead of {evidence.expected:.3g}"
