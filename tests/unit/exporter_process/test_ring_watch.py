from pathlib import Path

import pytest

from otel_llmprism.native import ring_layout as layout
from otel_llmprism.native.ring import RingWriter
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import HOOK_TIME, LOST
from otel_llmprism.service.exporter_process.ring_watch import RingWatch


def test_time_of_the_hooks_of_all_processes_adds_up_and_never_shrinks(tmp_path: Path) -> None:
    counters = Counters()
    engine, rank = (RingWriter.create(tmp_path / f"{name}.ring", slots=8) for name in ("engine", "rank"))
    watch = RingWatch(tmp_path, counters)
    watch.find_rings()
    engine.add_hook_time(1_500_000_000)
    rank.add_hook_time(250_000_000)
    assert list(watch.drain()) == []
    assert counters.value(HOOK_TIME) == pytest.approx(1.75)
    # Two threads of the engine met: an older sum was stored over a newer one.
    engine._words[layout.HOOK_TIME_WORD] = 1_000_000_000
    list(watch.drain())
    assert counters.value(HOOK_TIME) == pytest.approx(1.75)
    engine.add_hook_time(1_000_000_000)
    list(watch.drain())
    assert counters.value(HOOK_TIME) == pytest.approx(2.25)
    watch.close()
    engine.close()
    rank.close()


def test_what_a_writer_told_last_is_counted_before_its_ring_is_removed(tmp_path: Path) -> None:
    counters = Counters()
    writer = RingWriter.create(tmp_path / "engine.ring", slots=8)
    watch = RingWatch(tmp_path, counters)
    watch.find_rings()
    assert [writer.put(bytes(8 * 128)), writer.put(bytes(128))] == [True, False]
    assert len(next(watch.drain())[1]) == 8 * 128
    writer.add_hook_time(500_000_000)
    writer.close()
    watch.remove_finished()
    assert watch.is_over
    assert counters.value(LOST, stage="ring", cause="full") == 1
    assert counters.value(HOOK_TIME) == pytest.approx(0.5)
