# The command line: one module a subcommand, imported only when it is the one asked for. A command module
# has `HELP` (one sentence), `EXAMPLE`, `add_arguments(parser)` and `run(args) -> exit status`.
import argparse
import difflib
import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import NoReturn, Protocol, cast

from otel_llmprism import __version__
from otel_llmprism.cli.extras import describe_missing
from otel_llmprism.cli.log_format import configure_logging
from otel_llmprism.config.errors import ConfigError

PROGRAM = "otel-llmprism"
# The sentence stands here too, so that the list of commands needs no command's imports.
COMMANDS = {
    "up": "everything in one process: OTLP in, a store, a web page and a query API",
    "processor": "run the service: OTLP in, OTLP out, nothing lost",
    "control": "ask or switch a running engine: status, sentinel, off, deep-dive",
    "attach": "bring instrumentation into a running Python process",
    "steps": "list the ledgers kept on this machine, export their steps, show one as a trace",
    "baseline": "fit, inspect, check and compare models of expected step time",
    "demo": "run a small engine through the real path on this machine and show what was seen",
    "doctor": "what is available here, one line each, with the mend",
}
EXIT_OK, EXIT_FAILED, EXIT_BAD_USE, EXIT_INTERRUPTED = 0, 1, 2, 130


class Command(Protocol):
    """What a module of this package offers."""

    HELP: str
    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: list[str] | None = None) -> int:
    """Run one command; errors are one line on stderr, a traceback only with -v."""
    words = sys.argv[1:] if argv is None else argv
    is_verbose = "-v" in words or "--verbose" in words
    try:
        return _run_command(words)
    except ConfigError as error:
        return _report_error(error, EXIT_BAD_USE, is_verbose=is_verbose)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing to say, and nobody to hear it
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - the last place that can turn it into one line
        return _report_error(error, EXIT_FAILED, is_verbose=is_verbose)


def _run_command(words: list[str]) -> int:
    parser = _build_parser()
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None:
        parser.parse_args(words)  # --help and --version end here
        parser.error(f"no command given; choose one of {', '.join(COMMANDS)}")
    if name not in COMMANDS:
        parser.error(_describe_unknown(name))
    before = words[: words.index(name)]
    outer = parser.parse_args(before)
    try:
        return _run_found(name, words[len(before) + 1 :], is_verbose=outer.verbose)
    except ModuleNotFoundError as error:
        mend = describe_missing(name, error)
        if mend is None:
            raise
        raise ConfigError(mend) from error


def _run_found(name: str, words: list[str], *, is_verbose: bool) -> int:
    command = cast("Command", load_command(name))
    args = build_command_parser(name, command).parse_args(words)
    args.verbose = args.verbose or is_verbose
    configure_logging(is_verbose=args.verbose)
    if not args.verbose:
        # gRPC's core writes to stderr past our logging, beside the one line that we say ourselves.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return command.run(args)


def load_command(name: str) -> ModuleType:
    """Import the module of one command."""
    return importlib.import_module(f"otel_llmprism.cli.{name}")


def build_command_parser(name: str, command: Command) -> argparse.ArgumentParser:
    """Return the parser of one command, its example shown by --help."""
    parser = _Parser(
        prog=f"{PROGRAM} {name}",
        description=command.HELP,
        epilog=f"example:\n  {command.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        conflict_handler="resolve",
    )
    _add_verbose(parser)
    command.add_arguments(parser)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of usage and error."""
        self.exit(EXIT_BAD_USE, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def _build_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {sentence}" for name, sentence in COMMANDS.items())
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [-h] [-v] [--version] COMMAND ...",
        description="Which request, step, rank, kernel or link made an LLM job slow, told in OpenTelemetry.",
        epilog=f"commands:\n{listing}\n\nexample:\n  {PROGRAM} doctor --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_verbose(parser)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def _add_verbose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--verbose", action="store_true", help="debug log, and tracebacks of errors")


def _describe_unknown(name: str) -> str:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(COMMANDS)}"
    return f"no command {name!r}: {hint}"


def _report_error(error: Exception, status: int, *, is_verbose: bool) -> int:
    if is_verbose:
        traceback.print_exception(error)
    text = " ".join(str(error).split()) or type(error).__name__
    if status == EXIT_FAILED and not isinstance(error, (OSError, RuntimeError)):
        text = f"{type(error).__name__}: {text}"
    hint = "" if is_verbose or status == EXIT_BAD_USE else " (-v shows where)"
    sys.stderr.write(f"{PROGRAM}: error: {text}{hint}\n")
    return status
