# Ranks that nobody started together agree on one run through a store, and never wait for each other.
import threading
from pathlib import Path

import pytest

from otel_llmprism.instrumentation.training_meeting import Identity, Meeting, MeetingError, name_node
from otel_llmprism.native.run_folder import RuntimeFolderError


class FakeStore:
    """A store of torch.distributed, as far as it is used. A `get` of what is not there would wait."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        with self._lock:
            if self._values.get(key, b"").decode() == expected:
                self._values[key] = desired.encode()
            return self._values[key]

    def add(self, key: str, amount: int, /) -> int:
        with self._lock:
            self._values[key] = str(int(self._values.get(key, b"0")) + amount).encode()
            return int(self._values[key])

    def check(self, keys: list[str], /) -> bool:
        return all(key in self._values for key in keys)

    def get(self, key: str, /) -> bytes:
        assert key in self._values, "this would have blocked a step"
        return self._values[key]

    def set(self, key: str, value: str, /) -> None:
        self._values[key] = value.encode()


def test_all_ranks_take_what_the_first_proposed() -> None:
    store = FakeStore()
    meetings = [Meeting(store, f"node{rank // 2}") for rank in range(4)]
    agreed = {
        one.agree_identity(Identity(f"engine{rank}", f"{rank:032x}")) for rank, one in enumerate(meetings)
    }
    assert agreed == {Identity("engine0", f"{0:032x}")}


def test_each_node_has_one_rank_that_makes_the_folder() -> None:
    store = FakeStore()
    meetings = [Meeting(store, f"node{rank // 2}") for rank in range(4)]
    assert [one.is_first_here() for one in meetings] == [True, False, True, False]


def test_a_rank_finds_the_folder_once_it_is_published(tmp_path: Path) -> None:
    store = FakeStore()
    maker, other, elsewhere = (Meeting(store, node) for node in ("a", "a", "b"))
    assert other.find_folder() is None
    tmp_path.chmod(0o700)
    maker.publish_folder(str(tmp_path))
    assert other.find_folder() == str(tmp_path)
    assert elsewhere.find_folder() is None


def test_a_rank_whose_node_has_no_room_for_a_folder_is_told_so() -> None:
    store = FakeStore()
    Meeting(store, "a").publish_folder("")
    assert Meeting(store, "a").find_folder() == ""


def test_a_folder_that_others_may_enter_is_not_joined(tmp_path: Path) -> None:
    store = FakeStore()
    tmp_path.chmod(0o755)
    Meeting(store, "a").publish_folder(str(tmp_path))
    with pytest.raises(RuntimeFolderError):
        Meeting(store, "a").find_folder()


@pytest.mark.parametrize("text", ["", "7", "[]", '["engine"]', '["engine", "../../etc"]', "[1, 2]", "{"])
def test_what_is_no_identity_is_refused(text: str) -> None:
    store = FakeStore()
    store.compare_set("otel_llmprism/1/identity", "", text or "x")
    with pytest.raises(MeetingError):
        Meeting(store, "a").agree_identity(Identity("mine", "0" * 32))


def test_a_node_has_one_name() -> None:
    assert name_node() == name_node()
    assert len(name_node()) == 16
