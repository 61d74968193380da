# `baseline`: fit models of expected time to step records, look at them, hold records against them, compare
# two folders, carry them elsewhere.
import argparse
from collections.abc import Callable
from pathlib import Path

HELP = "fit, inspect, check and compare models of expected step time"
EXAMPLE = "otel-llmprism baseline fit steps.csv --out baselines"
_FORMS = "CSV, JSON lines, Parquet, each also .gz; ledger files; folders of either"
_Fill = Callable[[argparse.ArgumentParser], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (sentence, example, fill) in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=sentence,
            description=sentence,
            epilog=f"example:\n  otel-llmprism baseline {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        action.add_argument(
            "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="tracebacks of errors"
        )
        fill(action)


def run(args: argparse.Namespace) -> int:
    """Do the action; 1 when it could not be done or nothing was found, 2 for bad use."""
    # Imported here: --help needs neither numpy nor a model.
    from otel_llmprism.cli import baseline_actions, baseline_fit  # noqa: PLC0415 - see above

    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "fit": baseline_fit.fit,
        "show": baseline_actions.show,
        "check": baseline_actions.check,
        "diff": baseline_actions.diff,
        "export": baseline_actions.export,
        "import": baseline_actions.import_file,
    }
    return actions[args.action](args)


def _fill_fit(action: argparse.ArgumentParser) -> None:
    action.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help=_FORMS)
    action.add_argument("--out", type=Path, required=True, metavar="DIR", help="models are written there")
    action.add_argument("--seed", type=int, default=0, help="the same seed and inputs give the same models")


def _fill_show(action: argparse.ArgumentParser) -> None:
    action.add_argument("baseline", type=Path, metavar="DIR", help="folder of models, or one file")


def _fill_check(action: argparse.ArgumentParser) -> None:
    action.add_argument("inputs", nargs="+", type=Path, metavar="INPUT", help=_FORMS)
    action.add_argument(
        "--baseline", type=Path, required=True, metavar="DIR", help="folder of models, or one file"
    )
    action.add_argument("--json", metavar="FILE|-", help="write the figures there as JSON")


def _fill_diff(action: argparse.ArgumentParser) -> None:
    action.add_argument("old", type=Path, metavar="DIR", help="what was")
    action.add_argument("new", type=Path, metavar="DIR", help="what is")


def _fill_export(action: argparse.ArgumentParser) -> None:
    action.add_argument("baseline", type=Path, metavar="DIR", help="folder of models")
    action.add_argument("file", type=Path, metavar="FILE", help="all of them in one file")


def _fill_import(action: argparse.ArgumentParser) -> None:
    action.add_argument("file", type=Path, metavar="FILE", help="what `baseline export` wrote")
    action.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that takes them")


_ACTIONS: dict[str, tuple[str, str, _Fill]] = {
    "fit": ("fit models to step records", "fit monday.csv tuesday.csv --out baselines", _fill_fit),
    "show": ("say what each model is about", "show baselines", _fill_show),
    "check": (
        "hold step records against models",
        "check wednesday.csv --baseline baselines --json -",
        _fill_check,
    ),
    "diff": ("say where two folders' models disagree", "diff baselines-old baselines", _fill_diff),
    "export": ("put a folder of models into one file", "export baselines all.baseline", _fill_export),
    "import": ("take models from such a file", "import all.baseline --out baselines", _fill_import),
}
