# A process has one run and one control socket; here every test is a process of its own, so each leaves none.
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_run_is_left() -> Iterator[None]:
    yield
    process_run = sys.modules.get("otel_llmprism.instrumentation.process_run")
    if process_run is not None:
        process_run.end_run()
        process_run._forget_after_fork()
    server = sys.modules.get("otel_llmprism.instrumentation.control_server")
    if server is not None:
        server.close_control()
        vars(server)["_is_told"] = False
