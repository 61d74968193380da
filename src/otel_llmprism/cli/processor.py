# `processor`: the service on the OTLP path, from one YAML file.
import argparse
import json
import os
from pathlib import Path

HELP = "run the service: OTLP in, OTLP out, nothing that was acknowledged is lost"
EXAMPLE = "otel-llmprism processor --config processor.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="FILE", help="YAML file; ${env:NAME} is expanded")
    what.add_argument("--print-schema", action="store_true", help="print the JSON Schema of FILE and end")
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the effective configuration, secrets hidden, and end",
    )


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; SIGHUP reads the file again."""
    # Imported here: --help needs neither gRPC nor the server libraries.
    import yaml  # noqa: PLC0415 - see above

    from otel_llmprism.config.dump import dump_config  # noqa: PLC0415 - see above
    from otel_llmprism.service.settings import (  # noqa: PLC0415 - see above
        build_processor_schema,
        load_processor_config,
    )

    if args.print_schema:
        print(json.dumps(build_processor_schema(), indent=2))
        return 0
    config = load_processor_config(args.config, os.environ)
    if args.print_config:
        print(yaml.safe_dump(dump_config(config), sort_keys=False), end="")
        return 0
    from otel_llmprism.service.processor import run_processor  # noqa: PLC0415 - see above

    return run_processor(config, lambda: load_processor_config(args.config, os.environ))
