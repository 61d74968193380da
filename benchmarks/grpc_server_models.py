# Which gRPC server model takes OTLP batches in for the least CPU: grpcio's thread pool or grpc.aio.
# All but `receiver`, which is ours whole, only count bytes; user + system time of the server's process
# alone is reported. `python benchmarks/grpc_server_models.py [--requests 1500] [--rounds 5] [--spans 512]`
import argparse
import asyncio
import collections
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import KeySelection
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ports import ACCEPTED, Verdict
from otel_llmprism.receivers.limits import IntakeLimits
from otel_llmprism.receivers.otlp_grpc import OtlpGrpcConfig, OtlpGrpcReceiver

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MESSAGE_LIMIT = 16 << 20
PLAIN_OPTIONS = [("grpc.max_receive_message_length", MESSAGE_LIMIT)]
WIDE_OPTIONS = [
    *PLAIN_OPTIONS,
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 << 20),
]
OPTIONS = {"plain": PLAIN_OPTIONS, "wide": WIDE_OPTIONS}
MODELS = [
    "sync-1-plain",
    "sync-4-plain",
    "sync-36-plain",
    "sync-36-wide",
    "stream-36-plain",
    "aio-0-plain",
    "aio-0-wide",
    "uvloop-0-plain",
    "receiver-32-plain",
]


class CountingHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio ships no types
    def __init__(self, behaviour: Any, *, is_streaming: bool = False) -> None:
        build = grpc.stream_unary_rpc_method_handler if is_streaming else grpc.unary_unary_rpc_method_handler
        self._handler = build(behaviour)

    def service(self, _details: Any) -> Any:
        return self._handler


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="MODEL")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spans", type=int, default=512)
    parser.add_argument("--in-flight", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_model(arguments.serve)
    else:
        compare_models(arguments)
    return 0


def serve_model(model: str) -> None:
    kind, pool, options = model.split("-")
    if kind in {"sync", "stream"}:
        serve_threads(int(pool), OPTIONS[options], is_streaming=kind == "stream")
        return
    if kind == "receiver":
        serve_receiver(int(pool))
        return
    if kind == "uvloop":
        importlib.import_module("uvloop").install()
    asyncio.run(serve_loop(OPTIONS[options]))


def serve_threads(pool: int, options: list[tuple[str, int]], *, is_streaming: bool) -> None:
    received = [0]

    def count(request: bytes, _context: Any) -> bytes:
        received[0] += len(request)
        return b""

    def count_first(requests: Iterator[bytes], context: Any) -> bytes:
        return count(next(requests), context)

    server = grpc.server(futures.ThreadPoolExecutor(pool), options=options)
    behaviour = count_first if is_streaming else count
    server.add_generic_rpc_handlers((CountingHandler(behaviour, is_streaming=is_streaming),))
    say(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    report_usage(received)
    server.stop(None).wait()


class CountingIngress:
    def __init__(self) -> None:
        self.received = [0]

    def offer(self, _signal: Signal, payload: bytes, /) -> Verdict:
        self.received[0] += len(payload)
        return ACCEPTED


def serve_receiver(max_concurrent: int) -> None:
    ingress = CountingIngress()
    limits = IntakeLimits(max_concurrent=max_concurrent)
    config = OtlpGrpcConfig(endpoint="127.0.0.1:0", limits=limits)
    receiver = OtlpGrpcReceiver(config, ingress, Counters(), KeySelection(()))
    receiver.start()
    say(receiver.port)
    report_usage(ingress.received)
    receiver.stop(0)


async def serve_loop(options: list[tuple[str, int]]) -> None:
    received = [0]

    async def count(request: bytes, _context: Any) -> bytes:
        received[0] += len(request)
        return b""

    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((CountingHandler(count),))
    say(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await asyncio.to_thread(report_usage, received)
    await server.stop(None)


def say(fact: Any) -> None:
    print(json.dumps(fact), flush=True)


def report_usage(received: list[int]) -> None:
    for _line in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        say([usage.ru_utime, usage.ru_stime, received[0]])


@contextmanager
def start_server(model: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate(timeout=10)


def compare_models(arguments: argparse.Namespace) -> None:
    payload = build_request(arguments.spans)
    costs: dict[str, list[float]] = collections.defaultdict(list)
    for _round in range(arguments.rounds):
        for model in arguments.models:
            costs[model].append(measure_model(model, payload, arguments))
    print(f"grpcio {grpc.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"{arguments.requests} requests of {len(payload)} bytes, {arguments.in_flight} in flight")
    print("| model | CPU us/request, median | lowest |")
    print("|---|---|---|")
    for model, values in costs.items():
        print(f"| {model} | {statistics.median(values):.0f} | {min(values):.0f} |")


def build_request(spans: int) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for index in range(spans):
        span = scope.spans.add(name="decode", trace_id=os.urandom(16), span_id=os.urandom(8))
        span.start_time_unix_nano, span.end_time_unix_nano = index, index + 1
        for key in range(10):
            span.attributes.add(key=f"attribute.{key}").value.string_value = "some value"
    return request.SerializeToString()


def measure_model(model: str, payload: bytes, arguments: argparse.Namespace) -> float:
    with start_server(model) as process:
        port = read_fact(process)
        send_requests(port, payload, 200, arguments.in_flight)
        before = read_usage(process)
        send_requests(port, payload, arguments.requests, arguments.in_flight)
        after = read_usage(process)
    sent_bytes = len(payload) * arguments.requests
    if after[2] - before[2] != sent_bytes:
        raise SystemExit(f"{model} received {after[2] - before[2]} of {sent_bytes} bytes")
    cpu_s = after[0] + after[1] - before[0] - before[1]
    return float(cpu_s) / int(arguments.requests) * 1e6


def read_usage(process: subprocess.Popen[str]) -> Any:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return read_fact(process)


def read_fact(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def send_requests(port: int, payload: bytes, count: int, in_flight: int) -> None:
    slots = threading.Semaphore(in_flight)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        export = channel.unary_unary(METHOD)
        calls = []
        for _ in range(count):
            slots.acquire()
            call = export.future(payload)
            call.add_done_callback(lambda _call: slots.release())
            calls.append(call)
        for call in calls:
            call.result()


if __name__ == "__main__":
    raise SystemExit(main())
