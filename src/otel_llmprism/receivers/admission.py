# The step every OTLP receiver shares: the bytes of one request come in, the answer goes out, and what is
# well framed is offered to the pipeline as it came. Knows no transport and decodes nothing.
import contextlib
import logging
import os
import threading
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import KeySelection, MalformedRequestError, check, scan, select
from otel_llmprism.native.otlp_layout import RECORD_BAD_ID, RECORD_DTYPES
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ports import Ingress, Outcome, Verdict
from otel_llmprism.receivers.otlp_answers import OK_ANSWER, Answer, Reply
from otel_llmprism.semconv.intake import INTAKE_INVALID_UTF8, INTAKE_REFUSED
from otel_llmprism.semconv.metric import LOST

_LOGGER = logging.getLogger(__name__)
_DEFAULT_RETRY_S = 1.0
_AFTER_FAILURE_RETRY_S = 5.0
# Rows of records that hold nothing take a hundred times their bytes, and they compress to nothing. So large
# requests are scanned only a few at a time (more than there are cores gains nothing), and no rows wait.
_LARGE_BYTES = 64 << 10
_LARGE_SCANS = threading.Semaphore(min(4, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is left of a request once it was scanned; `payload` is None when nothing is worth offering."""

    signal: Signal
    payload: bytes | None
    bad_id_count: int
    invalid_utf8_count: int


class Admission:
    """Thread-safe; `stage` names the receiver in the counters."""

    def __init__(self, ingress: Ingress, counters: Counters, keys: KeySelection, stage: str) -> None:
        self._ingress = ingress
        self._counters = counters
        self._keys = keys
        self._stage = stage

    def admit(self, signal: Signal, payload: bytes) -> Answer:
        """Check the framing, cut out records with bad ids, offer the rest. Never raises."""
        try:
            with _LARGE_SCANS if len(payload) > _LARGE_BYTES else contextlib.nullcontext():
                checked = self._check(signal, payload)
        except MalformedRequestError as error:
            self.count_refusal("malformed")
            return Answer(Reply.MALFORMED, f"malformed request at byte {error.offset}: {error.why}")
        except MemoryError:
            self.count_refusal("no_memory")
            return Answer(Reply.UNAVAILABLE, "no memory for it now", retry_after_s=_AFTER_FAILURE_RETRY_S)
        if checked.invalid_utf8_count:
            self._counters.add(INTAKE_INVALID_UTF8, checked.invalid_utf8_count, signal=signal)
        refusal = None if checked.payload is None else self._offer(signal, checked.payload)
        return self._report_rejected(checked) if refusal is None else refusal

    def count_refusal(self, cause: str) -> None:
        """Count a request that went no further."""
        self._counters.add(INTAKE_REFUSED, 1, stage=self._stage, cause=cause)

    def _check(self, signal: Signal, payload: bytes) -> _Checked:
        counts = check(payload, signal)
        kept = None
        if counts.record_count > counts.bad_id_count:
            kept = self._cut_bad_ids(signal, payload) if counts.bad_id_count else payload
        return _Checked(signal, kept, counts.bad_id_count, counts.invalid_utf8_count)

    def _cut_bad_ids(self, signal: Signal, payload: bytes) -> bytes:
        found = scan(payload, signal, self._keys)
        rows = np.frombuffer(found.records, dtype=np.dtype(RECORD_DTYPES[found.signal]))
        keep = (rows["flags"] & RECORD_BAD_ID) == 0
        return select(payload, found, keep.astype(np.uint8).tobytes())

    def _offer(self, signal: Signal, payload: bytes) -> Answer | None:
        try:
            verdict = self._ingress.offer(signal, payload)
        except Exception:
            # The client keeps its data and comes again; the traceback is ours alone.
            _LOGGER.exception("the pipeline could not take a request")
            verdict = Verdict(Outcome.UNAVAILABLE, _AFTER_FAILURE_RETRY_S, "the pipeline failed; see our log")
        if verdict.outcome is Outcome.ACCEPTED:
            return None
        self.count_refusal(verdict.outcome.value)
        reply = Reply.BUSY if verdict.outcome is Outcome.BUSY else Reply.UNAVAILABLE
        why = verdict.why or f"{verdict.outcome.value}; send again later"
        return Answer(reply, why, retry_after_s=verdict.retry_after_s or _DEFAULT_RETRY_S)

    def _report_rejected(self, checked: _Checked) -> Answer:
        if not checked.bad_id_count:
            return OK_ANSWER
        self._counters.add(LOST, checked.bad_id_count, stage=self._stage, cause="bad_id")
        what = "spans" if checked.signal == Signal.TRACES else "records"
        message = (
            f"{checked.bad_id_count} {what} rejected: a trace id has 16 bytes, a span id 8, none all zero"
        )
        return Answer(Reply.OK, message, rejected_count=checked.bad_id_count)
