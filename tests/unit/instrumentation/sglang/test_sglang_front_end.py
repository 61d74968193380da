import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.engine_run import EngineRun
from otel_llmprism.instrumentation.frameworks import sglang
from otel_llmprism.instrumentation.switches import read_switches
from otel_llmprism.native.ring_records import Finish, Kind, RequestEvent, derive_request_handle
from otel_llmprism.testing.list_ring import ListRing

TRACE_ID, SPAN_ID = "ab" * 16, "cd" * 8
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


def list_events(ring: ListRing) -> list[tuple[int, RequestEvent, int]]:
    rows = ring.read(Kind.REQUEST_EVENT)
    return [(int(row["handle"]), RequestEvent(row["event"]), int(row["tokens"])) for row in rows]


@dataclass
class Ask:
    rid: str | list[str]
    external_trace_header: dict[str, str] | None = None


class TokenizerManager:
    """Shaped after SGLang 0.5.23."""

    def __init__(self) -> None:
        self.server_args = SimpleNamespace(dp_size=1)
        self.sent: list[Any] = []
        self.closed = 0

    async def generate_request(self, obj: Any, request: Any = None) -> AsyncIterator[str]:
        del request
        try:
            if isinstance(obj.rid, list):
                self._send_batch_request([SimpleNamespace(rid=rid) for rid in obj.rid])
            else:
                await self._send_one_request(SimpleNamespace(rid=obj.rid))
            yield "a"
            yield "b"
        finally:
            self.closed += 1

    async def _send_one_request(self, tokenized_obj: Any) -> None:
        self.sent.append(tokenized_obj)

    def _send_batch_request(self, tokenized_objs: list[Any]) -> None:
        self.sent += tokenized_objs

    async def _handle_batch_output(self, recv_obj: Any) -> int:
        return len(recv_obj.rids)

    def _handle_abort_req(self, recv_obj: Any) -> str:
        return str(recv_obj.rid)


class EarlierTokenizerManager(TokenizerManager):
    """Shaped after SGLang 0.5.5."""

    async def generate_request(self, obj: Any, request: Any = None) -> AsyncIterator[str]:
        del request
        self._send_one(obj, SimpleNamespace(rid=obj.rid), 0.0)
        yield "a"

    def _send_one(self, obj: Any, tokenized_obj: Any, created_time: float | None = None) -> None:
        del obj, created_time
        self.sent.append(tokenized_obj)


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[ListRing]:
    ring = ListRing()
    run = EngineRun(None, read_switches({}), cast("Any", ring), {})
    monkeypatch.setattr(process_run, "_run", run)
    module = ModuleType("sglang.srt.managers.tokenizer_manager")
    vars(module).update(TokenizerManager=TokenizerManager)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    sglang.install()
    yield ring
    sglang.remove()


def build_output(*told: tuple[str, str | None]) -> Any:
    reasons = [{"type": kind} if kind else None for _, kind in told]
    return SimpleNamespace(rids=[rid for rid, _ in told], finished_reasons=reasons)


async def take_all(stream: AsyncIterator[str]) -> list[str]:
    return [part async for part in stream]


def test_an_arrival_is_a_child_of_the_callers_context(ring: ListRing) -> None:
    manager = TokenizerManager()
    request = SimpleNamespace(headers={"traceparent": TRACEPARENT})
    assert asyncio.run(take_all(manager.generate_request(Ask("r1"), request))) == ["a", "b"]
    (arrived,) = ring.read(Kind.REQUEST_ARRIVED)
    assert int(arrived["handle"]) == derive_request_handle("r1")
    assert bytes(arrived["trace_id"]).hex() == TRACE_ID
    assert bytes(arrived["parent_span_id"]).hex() == SPAN_ID


def test_without_a_web_request_the_context_is_that_of_the_ask(ring: ListRing) -> None:
    ask = Ask("r1", {"traceparent": TRACEPARENT})
    asyncio.run(take_all(TokenizerManager().generate_request(ask)))
    assert bytes(ring.read(Kind.REQUEST_ARRIVED)[0]["trace_id"]).hex() == TRACE_ID


def test_two_engines_of_one_request_are_siblings_under_its_caller(ring: ListRing) -> None:
    request = SimpleNamespace(headers={"traceparent": TRACEPARENT})
    for manager, rid in ((TokenizerManager(), "prefill"), (TokenizerManager(), "decode")):
        asyncio.run(take_all(manager.generate_request(Ask(rid), request)))
    legs = ring.read(Kind.REQUEST_ARRIVED)
    assert [bytes(leg["parent_span_id"]).hex() for leg in legs] == [SPAN_ID] * 2
    assert len({bytes(leg["span_id"]) for leg in legs}) == 2


def test_the_engines_own_probes_are_nobodys_requests(ring: ListRing) -> None:
    manager = TokenizerManager()
    asyncio.run(take_all(manager.generate_request(Ask("HEALTH_CHECK_1700000000.5"))))
    asyncio.run(manager._handle_batch_output(build_output(("HEALTH_CHECK_1700000000.5", "length"))))
    assert ring.records == []


def test_each_request_of_a_batch_arrives(ring: ListRing) -> None:
    asyncio.run(take_all(TokenizerManager().generate_request(Ask(["a", "b"]))))
    handles = [int(row["handle"]) for row in ring.read(Kind.REQUEST_ARRIVED)]
    assert handles == [derive_request_handle("a"), derive_request_handle("b")]


def test_concurrent_callers_keep_their_own_contexts(ring: ListRing) -> None:
    manager = TokenizerManager()
    callers = [f"00-{index:032x}-{SPAN_ID}-01" for index in range(1, 9)]

    async def call(index: int, traceparent: str) -> None:
        stream = manager.generate_request(
            Ask(f"r{index}"), SimpleNamespace(headers={"traceparent": traceparent})
        )
        await asyncio.sleep(0)
        await take_all(stream)

    async def call_all() -> None:
        await asyncio.gather(*(call(index, traceparent) for index, traceparent in enumerate(callers)))

    asyncio.run(call_all())
    found = {int(row["handle"]): bytes(row["trace_id"]).hex() for row in ring.read(Kind.REQUEST_ARRIVED)}
    wanted = {derive_request_handle(f"r{index}"): text[3:35] for index, text in enumerate(callers)}
    assert found == wanted


def test_first_token_and_end_are_those_that_come_back(ring: ListRing) -> None:
    manager = TokenizerManager()
    asyncio.run(take_all(manager.generate_request(Ask(["a", "b"]))))
    for output in (build_output(("a", None), ("x", "stop")), build_output(("a", "length"), ("b", "stop"))):
        assert asyncio.run(manager._handle_batch_output(output)) == 2
    a, b = derive_request_handle("a"), derive_request_handle("b")
    assert list_events(ring) == [
        (a, RequestEvent.FIRST_TOKEN, 0),
        (a, RequestEvent.RESPONDED, Finish.LENGTH),
        (b, RequestEvent.FIRST_TOKEN, 0),
        (b, RequestEvent.RESPONDED, Finish.STOP),
    ]


def test_an_abort_is_answered_without_a_first_token(ring: ListRing) -> None:
    manager = TokenizerManager()
    asyncio.run(take_all(manager.generate_request(Ask(["a", "b"]))))
    assert manager._handle_abort_req(SimpleNamespace(rid="a")) == "a"
    asyncio.run(manager._handle_batch_output(build_output(("b", "abort"))))
    assert [(event, code) for _, event, code in list_events(ring)] == [
        (RequestEvent.RESPONDED, Finish.ABORT)
    ] * 2


def test_a_caller_who_leaves_closes_sglangs_own_generator(ring: ListRing) -> None:
    manager = TokenizerManager()

    async def leave() -> None:
        stream = cast("Any", manager.generate_request(Ask("r1")))
        assert await anext(stream) == "a"
        await stream.aclose()

    asyncio.run(leave())
    assert manager.closed == 1
    assert len(ring.read(Kind.REQUEST_ARRIVED)) == 1


@pytest.mark.parametrize("name", ["dp_size", "attn_dp_size"])
def test_requests_of_several_engines_are_left_to_their_schedulers(ring: ListRing, name: str) -> None:
    manager = TokenizerManager()
    setattr(manager.server_args, name, 2)
    asyncio.run(take_all(manager.generate_request(Ask("r1"))))
    assert ring.records == []


def test_no_text_of_a_request_is_recorded(ring: ListRing) -> None:
    manager = TokenizerManager()
    secret = "what the user wrote"
    ask = cast("Any", Ask("r1"))
    ask.text = secret
    asyncio.run(take_all(manager.generate_request(ask)))
    output = build_output(("r1", "stop"))
    output.output_strs = [secret]
    asyncio.run(manager._handle_batch_output(output))
    assert ring.records
    assert secret.encode() not in b"".join(ring.records)
