# `control`: ask or switch a running engine by its processes' control sockets.
import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from otel_llmprism.cli.engine_control import NotInstrumentedError, command_engine, find_engine
from otel_llmprism.native.control_socket import MAX_DEEP_STEPS

HELP = "ask or switch a running engine: status, sentinel, off, deep-dive"
EXAMPLE = "otel-llmprism control 4711 deep-dive --steps 20"
COMMANDS = ("status", "sentinel", "off", "deep-dive")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="any process of the engine")
    parser.add_argument("command", choices=COMMANDS, metavar="|".join(COMMANDS))
    parser.add_argument("--steps", type=int, default=20, help="of a deep-dive, whole steps (default 20)")
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")


def run(args: argparse.Namespace) -> int:
    """Do it in every process of the engine; 1 when none did it."""
    if not 1 <= args.steps <= MAX_DEEP_STEPS:
        sys.stderr.write(f"otel-llmprism control: error: --steps takes 1 to {MAX_DEEP_STEPS}\n")
        return 2
    try:
        engine = find_engine(args.pid)
    except NotInstrumentedError as error:
        sys.stderr.write(f"otel-llmprism control: error: {error}\n")
        return 1
    request: dict[str, object] = {"command": args.command}
    if args.command == "deep-dive":
        request["steps"] = args.steps
    answers = command_engine(engine, request)
    if args.json:
        print(json.dumps({"processes": list(answers.values())}))
    else:
        for pid, answer in answers.items():
            print("\n".join(describe_answer(pid, answer)))
    return 0 if any(answer.get("ok") for answer in answers.values()) else 1


def describe_answer(pid: int, answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a process's lines: what it is, its hooks, what is missing."""
    if not answer.get("ok"):
        yield f"{pid}  error: {answer.get('error', 'no answer')}"
        return
    parts = [f"{pid}  {answer['mode']}"]
    if "engine" in answer:
        parts.append(f"engine {answer['engine']} run {str(answer['run'])[:8]}")
        parts.append(f"dropped {answer['dropped']}")
    if answer.get("schedules") and answer.get("deep_left"):
        parts.append(f"deep steps to come {answer['deep_left']}")
    if answer.get("exporter_pid"):
        parts.append(f"exporter {answer['exporter_pid']}")
    yield ", ".join(parts)
    for hook in answer.get("hooks", ()):
        yield f"    {_describe_hook(hook)}"
    for neighbour in answer.get("neighbours", ()):
        yield f"    beside us  {neighbour['name']} ({neighbour['evidence']}): {neighbour['rule']}"
    for name in answer.get("absent_hooks", ()):
        yield f"    absent  {name}: this version of the engine has no such place"


def _describe_hook(hook: Mapping[str, Any]) -> str:
    state = f"off ({hook['off']})" if hook.get("off") else "on"
    times = f", p50 {hook['p50_us']} us, p99 {hook['p99_us']} us" if hook.get("p50_us") is not None else ""
    failures = f", {hook['failures']} failed" if hook.get("failures") else ""
    return f"{hook['name']:8} {state}, {hook['calls']} calls{times}{failures}"
