# The command line: one file a subcommand, each with `add_parser(subparsers)`.
import argparse


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="otel-llmprism")
    parser.parse_args(argv)
    return 0
