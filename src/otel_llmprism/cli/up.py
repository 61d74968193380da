# `up`: everything in one process, nothing else needed.
import argparse
import os
from functools import partial
from pathlib import Path

HELP = "everything in one process: OTLP in, a store, a web page and a query API"
EXAMPLE = "otel-llmprism up --data ./traces --export http://collector:4318"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file; ${env:NAME} is expanded")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where spans are kept (default: XDG data folder)"
    )
    parser.add_argument("--otlp-grpc", metavar="HOST:PORT", help="OTLP/gRPC (default 127.0.0.1:4317)")
    parser.add_argument("--otlp-http", metavar="HOST:PORT", help="OTLP/HTTP (default 127.0.0.1:4318)")
    parser.add_argument("--ui", metavar="HOST:PORT", help="page and query API (default 127.0.0.1:8317)")
    parser.add_argument("--ui-token-file", metavar="FILE", help="whoever asks needs the token in FILE")
    parser.add_argument(
        "--export", metavar="ENDPOINT", help="send everything on: http://... is OTLP/HTTP, host:port gRPC"
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the effective configuration and end"
    )


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT."""
    # Imported here: --help needs neither gRPC nor the server libraries.
    import yaml  # noqa: PLC0415 - see above

    from otel_llmprism.config.dump import dump_config  # noqa: PLC0415 - see above
    from otel_llmprism.service.all_in_one.settings import UpFlags, load_up_settings  # noqa: PLC0415 - see above

    flags = UpFlags(
        *(args.config, args.data, args.otlp_grpc, args.otlp_http),
        *(args.ui, args.ui_token_file, args.export),
    )
    settings = load_up_settings(flags, os.environ)
    if args.print_config:
        print(yaml.safe_dump(dump_config(settings.config), sort_keys=False), end="")
        return 0
    from otel_llmprism.service.all_in_one.run import run_up  # noqa: PLC0415 - see above

    return run_up(settings, partial(print, flush=True))
