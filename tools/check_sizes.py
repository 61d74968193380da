# Holds the sizes that docs/adr/0001 asks for: files, functions and classes of src/.
import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src"
MAX_FILE, MAX_MEDIAN_FILE = 300, 120
MAX_FUNCTION, P90_FUNCTION = 60, 30
MAX_CLASS, MAX_PUBLIC_METHODS = 150, 7
BANNED_NAMES = {"utils", "common", "helpers", "manager"}


def main() -> int:
    sources = sorted(ROOT.rglob("*.py"))
    problems = [problem for source in sources for problem in check_file(source)]
    lengths = [count_lines(source) for source in sources if count_lines(source)]
    if lengths and statistics.median(lengths) > MAX_MEDIAN_FILE:
        problems.append(f"median file is {statistics.median(lengths)} lines, above {MAX_MEDIAN_FILE}")
    functions = sorted(size for source in sources for _, size in list_functions(parse(source)))
    p90 = functions[int(len(functions) * 0.9)] if functions else 0
    if p90 > P90_FUNCTION:
        problems.append(f"90th percentile of functions is {p90} lines, above {P90_FUNCTION}")
    for problem in problems:
        print(problem)
    print(
        f"sizes: {len(sources)} files, {len(functions)} functions, p90 {p90} lines, {len(problems)} problems"
    )
    return 1 if problems else 0


def check_file(source: Path) -> Iterator[str]:
    name = source.relative_to(ROOT)
    if source.stem in BANNED_NAMES:
        yield f"{name}: call it after what it does"
    if count_lines(source) > MAX_FILE:
        yield f"{name}: {count_lines(source)} lines, above {MAX_FILE}"
    tree = parse(source)
    for function, size in list_functions(tree):
        if size > MAX_FUNCTION:
            yield f"{name}:{function.lineno} {function.name}: {size} lines, above {MAX_FUNCTION}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from check_class(name, node)


def check_class(name: Path, node: ast.ClassDef) -> Iterator[str]:
    size = measure(node)
    if size > MAX_CLASS:
        yield f"{name}:{node.lineno} class {node.name}: {size} lines, above {MAX_CLASS}"
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    public = [method.name for method in methods if not method.name.startswith("_")]
    if len(public) > MAX_PUBLIC_METHODS:
        yield f"{name}:{node.lineno} class {node.name}: {len(public)} public methods"


def list_functions(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, measure(node)


def measure(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parse(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def count_lines(source: Path) -> int:
    return source.read_text(encoding="utf-8").count("\n")


if __name__ == "__main__":
    sys.exit(main())
