# Where a finding's steps are found, with a store, without one, and with one that cannot be read.
from collections.abc import Collection, Iterable

from otel_llmprism.exporters.store.connection_pool import StoreUnreadableError
from otel_llmprism.model.findings import Finding
from otel_llmprism.service.query.kept_steps import find_kept_steps
from otel_llmprism.testing.sentinel_fake_findings import build_incidents

Ids = tuple[bytes, bytes]


def find_running() -> Finding:
    return build_incidents(1_700_000_000 * 10**9)[0].history[-1]


class EverythingStored:
    def read_names(self, ids: Iterable[Ids]) -> Collection[Ids]:
        return set(ids)


class Unreadable:
    def read_names(self, ids: Iterable[Ids]) -> Collection[Ids]:
        raise StoreUnreadableError("the disk is gone")


def test_a_store_tells_which_steps_it_holds() -> None:
    steps = find_kept_steps(find_running(), EverythingStored())
    assert len(steps) == 214
    assert {step["is_stored"] for step in steps} == {True}


def test_without_a_store_or_with_a_broken_one_it_is_unknown() -> None:
    for reader in (None, Unreadable()):
        steps = find_kept_steps(find_running(), reader)
        assert {step["is_stored"] for step in steps} == {None}
        assert all(step["trace_id"] for step in steps)
