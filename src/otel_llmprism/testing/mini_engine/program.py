# Arguments -> a whole run: client process, ranks, engine, records. Joins the parts and ends them all.
import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.instrumentation.engine_run import EngineRun
from otel_llmprism.instrumentation.process_run import begin_run, end_run
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.testing.mini_engine.client import run_client
from otel_llmprism.testing.mini_engine.collective import Group
from otel_llmprism.testing.mini_engine.engine import Engine, EngineParts
from otel_llmprism.testing.mini_engine.fault_injector import FaultInjector, FaultPlan
from otel_llmprism.testing.mini_engine.fault_schedule import ScheduleError, read_schedule
from otel_llmprism.testing.mini_engine.front_end import FrontEnd
from otel_llmprism.testing.mini_engine.model import ModelShard
from otel_llmprism.testing.mini_engine.rank_group import RankGroup
from otel_llmprism.testing.mini_engine.rank_network import RankNetwork
from otel_llmprism.testing.mini_engine.records import ProcessRecords
from otel_llmprism.testing.mini_engine.settings import EngineConfig, LoadConfig, ModelShape
from otel_llmprism.testing.mini_engine.token_log import TokenLog
from otel_llmprism.testing.mini_engine.worker import Worker

VERSION = "0"


@dataclass(frozen=True, slots=True)
class RunPlan:
    config: EngineConfig
    load: LoadConfig
    faults: FaultPlan
    network: RankNetwork
    log_path: Path | None


def main(arguments: list[str] | None = None) -> int:
    """Run the engine as the arguments say; 0 when it ended in order."""
    options = build_parser().parse_args(arguments)
    config, load = _read_config(options), _read_load(options)
    if config.shape.heads % config.ranks:
        sys.stderr.write(f"--ranks {config.ranks}: must divide the model's {config.shape.heads} heads\n")
        return 2
    begin_run("mini", VERSION, model="mini", ranks=config.ranks)
    records = ProcessRecords(RankPlace(rank=0))
    began_s = time.monotonic()
    log_path = Path(options.log_tokens) if options.log_tokens else None
    try:
        faults = _read_faults(options)
    except (OSError, ScheduleError) as error:
        sys.stderr.write(f"--faults: {error}\n")
        return 2
    network = RankNetwork(options.rank_address, options.rank_namespace)
    steps, run = _serve(RunPlan(config, load, faults, network, log_path), records)
    summary: dict[str, object] = {"steps": steps, "seconds": round(time.monotonic() - began_s, 3)}
    if run.description is not None:
        hooks = (run.steps.hook, run.requests.hook)
        summary |= {"engine": run.description.engine_id, "run": run.description.run}
        summary |= {"exporter_pid": run.exporter_pid}
        summary |= {
            f"{hook.name}_hook_us": round(hook.total_ns / max(hook.calls, 1) / 1e3, 1) for hook in hooks
        }
    print(json.dumps(summary), flush=True)  # noqa: T201  the program's answer
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m otel_llmprism.testing.mini_engine",
        description="A small continuous-batching engine in numpy, instrumented as a real one.",
        epilog="example: python -m otel_llmprism.testing.mini_engine --requests 200 --rate 40 --ranks 2",
    )
    load, engine = LoadConfig(), EngineConfig()
    add = parser.add_argument
    add("--requests", type=int, default=load.requests, help="how many (default %(default)s)")
    add("--seconds", type=float, default=load.seconds, help="send for so long instead of --requests")
    add("--rate", type=float, default=load.rate_per_s, help="arrivals a second (default %(default)s)")
    add("--closed", type=int, default=load.closed, help="keep N in flight instead of Poisson arrivals")
    add("--prompt", type=int, default=load.prompt_tokens, help="mean prompt tokens (default %(default)s)")
    add("--output", type=int, default=load.output_tokens, help="mean output tokens (default %(default)s)")
    add("--cancel", type=float, default=load.cancel_share, help="share of requests cancelled (default 0)")
    add("--sampled", type=float, default=load.sampled_share, help="share of traces sampled (default 1)")
    add("--canary-prompt", default="", help="text put into every prompt")
    add("--seed", type=int, default=load.seed)
    add("--ranks", type=int, default=engine.ranks, help="processes that share the model (default 1)")
    add("--max-batch", type=int, default=engine.max_batch, help="default %(default)s")
    add("--kv-blocks", type=int, default=engine.kv_blocks, help="of 16 tokens (default %(default)s)")
    add("--token-budget", type=int, default=engine.token_budget, help="a step (default %(default)s)")
    add("--layers", type=int, default=engine.shape.layers, help="default %(default)s")
    add("--width", type=int, default=engine.shape.width, help="default %(default)s")
    add("--log-tokens", default="", metavar="FILE", help="the engine's own book, JSON lines")
    add("--faults", default="", metavar="FILE", help="what is to be slow and when, JSON lines")
    add("--fault-origin-ns", type=int, default=0, metavar="NS", help="CLOCK_MONOTONIC of their second 0")
    add("--fault-origin-file", default="", metavar="FILE", help="it will hold that, and appear later")
    add("--fault-log", default="", metavar="FILE", help="the time that was added, JSON lines, a file a rank")
    add("--rank-address", default="", metavar="IP", help="ranks meet here by TCP instead of pipes")
    add("--rank-namespace", default="", metavar="NAME", help="network namespace of the ranks beyond 0")
    return parser


def _read_faults(options: argparse.Namespace) -> FaultPlan:
    if not options.faults:
        return FaultPlan()
    log = Path(options.fault_log) if options.fault_log else None
    later = Path(options.fault_origin_file) if options.fault_origin_file else None
    origin_ns = options.fault_origin_ns or time.monotonic_ns()
    return FaultPlan(read_schedule(Path(options.faults)), origin_ns, log, later)


def _read_config(options: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        max_batch=options.max_batch,
        kv_blocks=options.kv_blocks,
        token_budget=options.token_budget,
        ranks=options.ranks,
        shape=ModelShape(layers=options.layers, width=options.width, seed=options.seed),
    )


def _read_load(options: argparse.Namespace) -> LoadConfig:
    return LoadConfig(
        requests=options.requests,
        seconds=options.seconds,
        rate_per_s=options.rate,
        closed=options.closed,
        prompt_tokens=options.prompt,
        output_tokens=options.output,
        cancel_share=options.cancel,
        sampled_share=options.sampled,
        canary_prompt=options.canary_prompt,
        seed=options.seed,
    )


def _serve(plan: RunPlan, records: ProcessRecords) -> tuple[int, EngineRun]:
    config = plan.config
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    client = context.Process(target=run_client, args=(theirs, plan.load, plan.faults), name="client")
    is_told_to_stop = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal is_told_to_stop
        is_told_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    injector = FaultInjector(plan.faults)
    ranks, log = RankGroup(config, plan.faults, plan.network), TokenLog(plan.log_path)
    _tell_pids(ranks)
    client.start()
    theirs.close()
    group = Group(0, ranks.peers, config.ranks)
    worker = Worker(ModelShard(config, 0), group, records.find_rank_recorder, injector)
    front_end = FrontEnd(ours, injector)
    parts = EngineParts(
        config, records.find_run, front_end, ranks, worker, injector, log, lambda: is_told_to_stop
    )
    try:
        return Engine(parts).run_until_done(), records.find_run()
    finally:
        ours.close()
        ranks.stop()
        end_run()
        log.close()
        injector.close()
        _end_client(client)


def _tell_pids(ranks: RankGroup) -> None:
    """Say which process is which rank, for whoever wants to slow one of them."""
    pids = {0: os.getpid(), **ranks.list_pids()}
    sys.stderr.write(json.dumps({"rank_pids": pids}) + "\n")
    sys.stderr.flush()


def _end_client(client: multiprocessing.process.BaseProcess) -> None:
    client.join(timeout=15)  # it ships its last spans
    if client.is_alive():
        os.kill(client.pid or 0, signal.SIGTERM)
        client.join()
