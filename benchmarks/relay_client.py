# The client of the relay benchmarks: replays ready-made requests over gRPC, decodes nothing, and obeys
# "run RATE COUNT" lines on stdin (requests a second; 0: as fast as IN_FLIGHT allows); answers JSON lines.
import json
import sys
import threading
import time

import grpc
from relay_payload import SENT_DIGITS, build_requests, split_at_sent

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
DISTINCT_REQUESTS = 32
IN_FLIGHT = 16
RETRY_S = 0.02
CODES = {"none": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}
RETRYABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}


def main() -> None:
    target, compression = sys.argv[1], sys.argv[2]
    pieces = [split_at_sent(payload) for payload in build_requests(DISTINCT_REQUESTS)]
    options = [("grpc.max_send_message_length", 64 << 20)]
    with grpc.insecure_channel(target, options=options, compression=CODES[compression]) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        say({"ready": True, "request_bytes": len(pieces[0][0]) + SENT_DIGITS + len(pieces[0][1])})
        sender = Sender(channel, pieces)
        for line in sys.stdin:
            _, rate, count = line.split()
            say(sender.run(float(rate), int(count)))


class Sender:
    def __init__(self, channel: grpc.Channel, pieces: list[tuple[bytes, bytes]]) -> None:
        self._call = channel.unary_unary(METHOD)
        self._pieces = pieces
        self._room = threading.Semaphore(IN_FLIGHT)
        self._next = 0
        self._retried = self._failed = 0

    def run(self, rate: float, count: int) -> dict[str, float]:
        """Send `count` requests at `rate`; return when all are acknowledged."""
        self._retried = self._failed = 0
        late_s = 0.0
        started = time.monotonic()
        for index in range(count):
            if rate:
                due = started + index / rate
                wait_s = due - time.monotonic()
                if wait_s > 0:
                    time.sleep(wait_s)
                else:
                    late_s = max(late_s, -wait_s)
            self._send()
        for _ in range(IN_FLIGHT):
            self._room.acquire()
        wall_s = time.monotonic() - started
        self._room.release(IN_FLIGHT)
        counts = {"sent": count, "retried": self._retried, "failed": self._failed}
        return counts | {"wall_s": wall_s, "late_s": late_s}

    def _send(self) -> None:
        self._room.acquire()
        before, after = self._pieces[self._next % len(self._pieces)]
        self._next += 1
        payload = before + b"%020d" % time.monotonic_ns() + after
        self._call.future(payload, timeout=60).add_done_callback(lambda future: self._settle(future, payload))

    def _settle(self, future: grpc.Future, payload: bytes) -> None:
        """Runs on grpc's thread; a refused request is sent again, since both systems may refuse when full."""
        code = future.code()
        if code in RETRYABLE:
            self._retried += 1
            time.sleep(RETRY_S)
            self._call.future(payload, timeout=60).add_done_callback(
                lambda again: self._settle(again, payload)
            )
            return
        if code is not grpc.StatusCode.OK:
            self._failed += 1
        self._room.release()


def say(answer: dict[str, object] | dict[str, float]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
