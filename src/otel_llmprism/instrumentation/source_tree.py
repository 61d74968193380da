# The Python files of a framework that is not installed here, read as syntax: which callables are where, and
# what they take, inheritance inside the package resolved. Imports and runs nothing of it.
import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from otel_llmprism.instrumentation.hooking import Target

Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEPTH = 12  # a chain of bases, aliases and re-exports longer than this is taken for a circle


@dataclass(frozen=True, slots=True)
class Place:
    """Something a module defines at its top, or a class in its body."""

    module: str
    node: ast.stmt


@dataclass(slots=True)
class SourceTree:
    """The sources below `root`, where packages lie as in site-packages."""

    root: Path
    _modules: dict[str, ast.Module | None] = field(default_factory=dict)

    def has_module(self, name: str) -> bool:
        return self._parse(name) is not None

    def find_parameters(self, module: str, path: str) -> list[str] | None:
        """Return what the callable takes, as inspect.signature says it, without self; None: not there."""
        first, *rest = path.split(".")
        place = self._find_in_module(module, first, _DEPTH)
        while place is None and rest and self.has_module(f"{module}.{first}"):  # torch: optim.Optimizer
            module, first, rest = f"{module}.{first}", rest[0], rest[1:]
            place = self._find_in_module(module, first, _DEPTH)
        for name in rest:
            place = self._find_in_class(place, name, _DEPTH) if place else None
        if place and isinstance(place.node, ast.ClassDef):
            place = self._find_in_class(place, "__init__", _DEPTH)
        if place is None or not isinstance(place.node, Function):
            return None
        names = list_parameters(place.node.args)
        return names[1:] if names[:1] in (["self"], ["cls"]) else names

    def _find_in_class(self, place: Place, name: str, depth: int) -> Place | None:
        """Look into the class, then into its bases from left to right."""
        if not isinstance(place.node, ast.ClassDef) or not depth:
            return None
        for node in list_statements(place.node.body):
            if _defines(node, name):
                return Place(place.module, node)
        for base in place.node.bases:
            if (found := self._find_base(place.module, base, depth - 1)) and (
                inherited := self._find_in_class(found, name, depth - 1)
            ):
                return inherited
        return None

    def _find_base(self, module: str, base: ast.expr, depth: int) -> Place | None:
        if isinstance(base, ast.Subscript):  # Generic[T]
            base = base.value
        if isinstance(base, ast.Name):
            return self._find_in_module(module, base.id, depth)
        return None

    def _find_in_module(self, module: str, name: str, depth: int) -> Place | None:
        """Follow imports and assigned names; the last definition counts, as it does when it runs."""
        tree = self._parse(module)
        if tree is None or not depth:
            return None
        found: Place | None = None
        for node in list_statements(tree.body):
            if _defines(node, name):
                found = Place(module, node)
            elif isinstance(node, ast.ImportFrom):
                found = self._follow_import(module, node, name, depth - 1) or found
            elif isinstance(node, ast.Assign) and _assigns(node, name) and isinstance(node.value, ast.Name):
                found = self._find_in_module(module, node.value.id, depth - 1) or found
        return found

    def _follow_import(self, module: str, node: ast.ImportFrom, name: str, depth: int) -> Place | None:
        for alias in node.names:
            if alias.name == "*" or (alias.asname or alias.name) == name:
                wanted = name if alias.name == "*" else alias.name
                return self._find_in_module(self._name_source(module, node), wanted, depth)
        return None

    def _name_source(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = (self.root / Path(*module.split(".")) / "__init__.py").exists()
        parts = module.split(".")
        kept = parts[: len(parts) - node.level + is_package]
        return ".".join([*kept, *([node.module] if node.module else [])])

    def _parse(self, name: str) -> ast.Module | None:
        if name not in self._modules:
            file = self.root.joinpath(*name.split("."))
            candidates = (file / "__init__.py", file.with_name(file.name + ".py"))
            path = next((path for path in candidates if path.exists()), None)
            self._modules[name] = ast.parse(path.read_bytes()) if path else None
        return self._modules[name]


def find_fault(tree: SourceTree, target: Target) -> str | None:
    """Say what is wrong with the place a target names, by the rules of the patching itself; or None."""
    if not tree.has_module(target.module):
        return f"{target.name}: there is no module {target.module}"
    found = tree.find_parameters(target.module, target.path)
    if found is None:
        return f"{target.name} is not there"
    wanted = list(target.parameters)
    if found[: len(wanted)] != wanted:
        return f"{target.name} takes ({', '.join(found)}), not ({', '.join(wanted)}, ...)"
    return None


def list_parameters(arguments: ast.arguments) -> list[str]:
    """Return the names in the order of inspect.signature."""
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    names += [arguments.vararg.arg] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    return names + ([arguments.kwarg.arg] if arguments.kwarg else [])


def list_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, also those under `if`, `try` and `with`, in order."""
    for node in body:
        if isinstance(node, ast.If):
            yield from list_statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from list_statements([*node.body, *handlers, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.With):
            yield from list_statements(node.body)
        else:
            yield node


def _defines(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.ClassDef | Function) and node.name == name


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
