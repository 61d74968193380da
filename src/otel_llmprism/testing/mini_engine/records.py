# This process's records as they are at each call: those of its run, or of none while it is asleep. A real
# engine's wrappers ask the same question.
import os

from otel_llmprism.instrumentation.engine_run import EngineRun
from otel_llmprism.instrumentation.process_run import current_run
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.switches import read_switches


class ProcessRecords:
    """Owned by the thread that serves one rank."""

    def __init__(self, place: RankPlace) -> None:
        self._asleep = EngineRun(None, read_switches(os.environ), None, os.environ)
        self._place = place
        self._known = self._asleep
        self._recorder = self._asleep.build_rank_recorder(place)

    def find_run(self) -> EngineRun:
        return current_run() or self._asleep

    def find_rank_recorder(self) -> RankRecorder:
        run = self.find_run()
        if run is not self._known:
            self._known, self._recorder = run, run.build_rank_recorder(self._place)
        return self._recorder
