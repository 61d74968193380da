# `python -m otel_llmprism.testing.mini_engine`: a small real engine under a seeded load, instrumented
# as a real one is. Prints one JSON line about the run when it is done.
import os

# One core a rank: the ranks' waiting for each other must not come from numpy's own threads.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from otel_llmprism.testing.mini_engine.program import main  # noqa: E402  numpy reads the variables above

if __name__ == "__main__":
    raise SystemExit(main())
