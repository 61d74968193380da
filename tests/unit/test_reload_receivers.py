# The set of receivers: what stays, what is replaced, what happens when one fails.
import pytest

from otel_llmprism.service.reload_receivers import Listener, ReceiverSet


class FakeSource:
    def __init__(self, name: str, log: list[str], *, fails: bool = False) -> None:
        self.name, self.log, self.fails = name, log, fails

    def start(self) -> None:
        if self.fails:
            raise RuntimeError(f"{self.name} cannot listen")
        self.log.append(f"+{self.name}")

    def stop(self, deadline_ns: int) -> None:
        self.log.append(f"-{self.name}")


def listen(
    name: str, endpoint: str, log: list[str], *, has_files: bool = False, fails: bool = False
) -> Listener:
    return Listener(
        (name, endpoint), endpoint, has_files, lambda: FakeSource(f"{name}@{endpoint}", log, fails=fails)
    )


def start(log: list[str]) -> ReceiverSet:
    receivers = ReceiverSet({"grpc": listen("grpc", "a", log), "http": listen("http", "b", log)})
    receivers.start()
    log.clear()
    return receivers


def test_what_stays_the_same_is_not_touched() -> None:
    log: list[str] = []
    start(log).replace({"grpc": listen("grpc", "a", log), "http": listen("http", "b", log)})
    assert log == []


def test_new_port_opens_before_the_old_one_closes() -> None:
    log: list[str] = []
    start(log).replace({"grpc": listen("grpc", "c", log), "http": listen("http", "b", log)})
    assert log == ["+grpc@c", "-grpc@a"]


def test_files_may_have_changed_under_the_same_name() -> None:
    log: list[str] = []
    start(log).replace({"grpc": listen("grpc", "a", log, has_files=True), "http": listen("http", "b", log)})
    assert log == ["-grpc@a", "+grpc@a"]


def test_receiver_that_is_gone_from_the_file_stops() -> None:
    log: list[str] = []
    receivers = start(log)
    receivers.replace({"http": listen("http", "b", log)})
    assert log == ["-grpc@a"]
    assert receivers.find("grpc") is None
    assert receivers.find("http") is not None


def test_failure_brings_everything_back() -> None:
    log: list[str] = []
    receivers = start(log)
    with pytest.raises(RuntimeError, match="http@c cannot listen"):
        receivers.replace(
            {"grpc": listen("grpc", "a", log, has_files=True), "http": listen("http", "c", log, fails=True)}
        )
    assert log == ["-grpc@a", "+grpc@a", "-grpc@a", "+grpc@a"]
    assert receivers.find("grpc") is not None
    assert receivers.find("http") is not None
    log.clear()
    receivers.stop(0)
    assert sorted(log) == ["-grpc@a", "-http@b"]


def test_receiver_that_could_not_come_back_is_tried_again_with_the_next_file() -> None:
    log: list[str] = []
    is_port_taken = False

    class Port(FakeSource):
        def start(self) -> None:
            self.fails = is_port_taken
            super().start()

    def at(endpoint: str, config: str) -> Listener:
        return Listener(config, endpoint, has_files=False, build=lambda: Port(config, log))

    receivers = ReceiverSet({"grpc": at("a", "old")})
    receivers.start()
    is_port_taken = True
    with pytest.raises(RuntimeError, match="new cannot listen"):
        receivers.replace({"grpc": at("a", "new")})
    assert receivers.find("grpc") is None
    with pytest.raises(RuntimeError, match="newer cannot listen"):
        receivers.replace({"grpc": at("a", "newer")})
    is_port_taken = False
    receivers.replace({"grpc": at("a", "old")})
    assert receivers.find("grpc") is not None
    assert log == ["+old", "-old", "+old"]


def test_stop_reaches_all_and_may_repeat() -> None:
    log: list[str] = []
    receivers = start(log)
    receivers.stop(0)
    receivers.stop(0)
    assert sorted(log) == ["-grpc@a", "-http@b"]
