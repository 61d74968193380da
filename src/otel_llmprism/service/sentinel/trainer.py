# The process that fits models: one job in by its standard input, one answer out by its standard output, then
# it ends, so that memory and threads of a fit are gone with it. Niced and bounded from within, too.
import os
import resource
import sys

from otel_llmprism.service.sentinel.trainer_wire import FAILED, FITTED, WireError, decode_job

_NICENESS = 10
_MAX_TEXT = 500


def main() -> int:
    """Answer one job; the arguments are the bounds on memory (bytes) and on processor time (seconds)."""
    max_memory, max_cpu_s = (int(word) for word in sys.argv[1:3])
    os.nice(_NICENESS)
    # Address space, since the size of the heap cannot be bounded; threads of numeric libraries reserve some.
    resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer = answer_job(sys.stdin.buffer.read())
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    return 0


def answer_job(raw: bytes) -> bytes:
    """Return the status and the model, or why there is none."""
    try:
        work, cycle_ns, groups, seed = decode_job(raw)
        from otel_llmprism.service.sentinel.wiring import build_parts  # noqa: PLC0415 - bounds come first

        parts = build_parts()
        return FITTED + parts.dump(parts.fit(work, cycle_ns, groups, seed))
    except (WireError, ValueError, MemoryError) as error:
        return FAILED + " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_TEXT].encode()


if __name__ == "__main__":
    sys.exit(main())
