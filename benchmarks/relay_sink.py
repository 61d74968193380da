# The backend of the relay benchmarks: acknowledges every trace request, counts it, notes how long it was
# under way, decodes nothing. "report" on stdin answers the count; "report PATH" also writes the last payload
# to PATH, answers the delays since the last such line, and forgets them.
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from relay_payload import SENT_DIGITS, find_all_sent

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
THREADS = 4


class Count:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests = 0
        self.payload_bytes = 0
        self.last = b""
        self.delays_ns: list[int] = []

    def take(self, payload: bytes, _context: grpc.ServicerContext) -> bytes:
        now_ns = time.monotonic_ns()
        starts = list(find_all_sent(payload))  # several when requests were merged on their way
        with self.lock:
            self.requests += len(starts)
            self.payload_bytes += len(payload)
            self.last = payload
            self.delays_ns += [now_ns - int(payload[at : at + SENT_DIGITS]) for at in starts]
        return b""


def main() -> None:
    count = Count()
    options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.so_reuseport", 0)]
    with ThreadPoolExecutor(THREADS) as pool:
        server = grpc.server(pool, options=options)
        method = grpc.unary_unary_rpc_method_handler(count.take)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Export": method})])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        print(json.dumps({"port": port}), flush=True)
        for line in sys.stdin:
            _, _, path = line.strip().partition(" ")
            with count.lock:
                answer = {"requests": count.requests, "payload_bytes": count.payload_bytes}
                if path:
                    with open(path, "wb") as out:  # noqa: PTH123 - one write
                        out.write(count.last)
                    answer["delays_ns"] = count.delays_ns
                    count.delays_ns = []
            print(json.dumps(answer), flush=True)
        server.stop(grace=0).wait()


if __name__ == "__main__":
    main()
