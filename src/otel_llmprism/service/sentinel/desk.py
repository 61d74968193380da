# Takes each News of the core to all who want it: requests to send, verdicts for spans still held, deep-dive
# requests, the page, files. One thread; knows no queue and no clock.
import numpy as np

from otel_llmprism.exporters.finding_spans import read_run
from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.semconv.step import SPAN_STEP
from otel_llmprism.service.control_book import ControlBook, RequestRefusedError
from otel_llmprism.service.query.sentinel_view import EngineState, EngineView, ModelView
from otel_llmprism.service.sentinel.board import SentinelBoard
from otel_llmprism.service.sentinel.core import SentinelCore
from otel_llmprism.service.sentinel.emission import Emission
from otel_llmprism.service.sentinel.engine import EngineWatch, to_real_ns
from otel_llmprism.service.sentinel.engine_model import FIRST_STEPS
from otel_llmprism.service.sentinel.facts import EngineFacts
from otel_llmprism.service.sentinel.model_book import StoredModel
from otel_llmprism.service.sentinel.news import News, RequestVerdict, ScoredBatch
from otel_llmprism.service.sentinel.outbox import Outbox
from otel_llmprism.service.sentinel.state_files import StateFiles
from otel_llmprism.service.sentinel.verdict_book import RequestAddition, StepVerdict, VerdictBook

_NS_PER_S = 1e9


class Desk:
    def __init__(
        self,
        core: SentinelCore,
        emission: Emission,
        outbox: Outbox,
        *,
        verdicts: VerdictBook,
        board: SentinelBoard,
        control: ControlBook,
        files: StateFiles,
        deep_dive_steps: int,
    ) -> None:
        self._core = core
        self._emission = emission
        self._outbox = outbox
        self._verdicts = verdicts
        self._board = board
        self._control = control
        self._files = files
        self._deep_dive_steps = deep_dive_steps

    def take(self, news: News, now_ns: int, monotonic_ns: int) -> None:
        """Pass on what one call of the core brought."""
        for batch in news.batches:
            self._note_kept(batch)
        for source, verdict in news.verdicts:
            self._note_request(source, verdict)
        told = [finding for finding in news.findings if not self._board.findings.is_silenced(finding, now_ns)]
        for signal, payload in self._emission.build(news, now_ns, told):
            self._outbox.put(signal, payload)
        for finding in told:
            self._ask_deep_dive(finding, monotonic_ns)
        for fitted in news.fitted:
            stored = StoredModel(
                fitted.engine_id, fitted.peers, fitted.trained_steps, fitted.raw, fitted.reference_raw
            )
            self._files.save_model(stored)
        self._board.engines.note(news)
        self._board.findings.note(news.findings)

    def show_engines(self) -> None:
        """Let the page see how the engines stand."""
        self._board.engines.show([self._describe(watch) for watch in self._core.watches.list_watches()])

    def send_metrics(self, now_ns: int) -> None:
        for signal, payload in self._emission.build_metrics(now_ns):
            self._outbox.put(signal, payload)

    def _note_kept(self, batch: ScoredBatch) -> None:
        """Have ready what the exporter's spans of kept steps are to say."""
        source, scored = batch.source, batch.scored
        kept = batch.tables.steps.kept[batch.rows] > 0
        run = read_run(source.run)
        for row in np.flatnonzero(kept & np.isfinite(scored.expected_ns)).tolist():
            trace_id = derive_step_trace_id(source.engine_id, run, int(scored.step[row]))
            verdict = StepVerdict(
                float(scored.expected_ns[row]) / _NS_PER_S,
                float(scored.residual[row]),
                bool(scored.is_flagged[row]),
            )
            self._verdicts.note_step(trace_id, verdict)

    def _note_request(self, source: LedgerSource, verdict: RequestVerdict) -> None:
        run = read_run(source.run)
        traces = [(derive_step_trace_id(source.engine_id, run, step), step) for step in verdict.slow_step_ids]
        addition = RequestAddition(
            verdict.slow_steps,
            verdict.unexplained_s,
            verdict.finding_id,
            tuple((trace_id, derive_span_id(trace_id, SPAN_STEP), step) for trace_id, step in traces),
        )
        self._verdicts.note_request(verdict.trace_id, verdict.span_id, addition)

    def _ask_deep_dive(self, finding: Finding, monotonic_ns: int) -> None:
        if finding.state is not FindingState.OPEN or not self._deep_dive_steps:
            return
        try:
            self._control.file_request(finding.engine_id, self._deep_dive_steps, monotonic_ns)
        except RequestRefusedError:  # counted by the book: one of it ran a moment ago, or too many wait
            return

    def _describe(self, watch: EngineWatch) -> EngineView:
        engine_id = watch.source.engine_id
        facts, open_count = (
            self._core.watches.facts.get(engine_id, EngineFacts()),
            len(self._core.open.list_open(engine_id)),
        )
        model = watch.model
        state = EngineState.ALARM if open_count else EngineState.WATCHING
        if model.current is None:
            view = ModelView(trained_steps=model.learned, wanted_steps=FIRST_STEPS)
            state = EngineState.ALARM if open_count else EngineState.LEARNING
        else:
            own = model.current
            note = "borrowed from a peer until it has its own" if own.is_borrowed else model.note
            view = ModelView(own.model.version, own.trained_steps, model.read_error(), note=note)
        return EngineView(
            engine_id,
            watch.source.run,
            facts.name,
            facts.job,
            state,
            view,
            watch.steps_seen,
            open_count,
            to_real_ns(watch.anchor, watch.data_ns),
        )
