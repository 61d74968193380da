# Engines as the page sees them: how each stands now, and its last blocks. Thread-safe, bounded.
import threading
from collections import OrderedDict
from collections.abc import Sequence

from otel_llmprism.service.query.sentinel_view import BlockView, EngineView
from otel_llmprism.service.sentinel.blocks import EngineBlocks
from otel_llmprism.service.sentinel.news import News

_MAX_ENGINES = 500


class EngineShelf:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[str, EngineView] = {}
        self._blocks: OrderedDict[str, EngineBlocks] = OrderedDict()

    def note(self, news: News) -> None:
        """Take in steps and what charts said of them."""
        with self._lock:
            for batch in news.batches:
                self._find(batch.source.engine_id).add(batch)
            for told in news.readings:
                self._find(told.source.engine_id).mark(told)

    def show(self, engines: Sequence[EngineView]) -> None:
        """Show these engines and no others."""
        with self._lock:
            self._engines = {engine.id: engine for engine in engines}

    def list_views(self) -> list[EngineView]:
        with self._lock:
            return sorted(self._engines.values(), key=lambda engine: engine.id)

    def read(self, engine_id: str, begin_ns: int, end_ns: int) -> list[BlockView] | None:
        with self._lock:
            blocks = self._blocks.get(engine_id)
            if blocks is None:
                return [] if engine_id in self._engines else None
            return blocks.read(begin_ns, end_ns)

    def _find(self, engine_id: str) -> EngineBlocks:
        blocks = self._blocks.get(engine_id)
        if blocks is None:
            blocks = self._blocks[engine_id] = EngineBlocks()
            if len(self._blocks) > _MAX_ENGINES:
                self._blocks.popitem(last=False)
        return blocks
