# Callables found in sources that are only read: the rules by which a moved hook target is noticed.
from pathlib import Path

import pytest

from otel_llmprism.instrumentation.source_tree import SourceTree

FILES = {
    "engine/__init__.py": "from .core import Core as Main\nfrom engine.worker import *\n",
    "engine/core.py": """
from typing import Generic, TypeVar
from engine.base import Base
try:
    import fast
except ImportError:
    def run(slow, *, limit=1, **rest): ...
class Mixin: ...
class Core(Mixin, Base[int]):
    def __init__(self, config): ...
    async def step(self, batch, /, *more): ...
""",
    "engine/base.py": """
class Base:
    def schedule(self, throttle=False): ...
    @classmethod
    def build(cls, name): ...
    limit: int = 3
""",
    "engine/worker.py": """
from .base import Base as Parent
class GPUWorker(Parent):
    def execute(self, output): ...
if True:
    Worker = GPUWorker
class Circle(Circle): ...
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return SourceTree(tmp_path)


@pytest.mark.parametrize(
    ("module", "path", "parameters"),
    [
        ("engine.core", "Core.step", ["batch", "more"]),
        ("engine.core", "Core.schedule", ["throttle"]),  # of a generic base in another module
        ("engine.core", "Core.build", ["name"]),
        ("engine.core", "Core", ["config"]),
        ("engine.core", "run", ["slow", "limit", "rest"]),  # defined where an import fails
        ("engine", "Main.step", ["batch", "more"]),  # under the name it was imported by
        ("engine", "Worker.execute", ["output"]),  # a star import of an assigned name
        ("engine.worker", "Worker.schedule", ["throttle"]),
    ],
)
def test_a_callable_is_found_where_python_would_find_it(
    tree: SourceTree, module: str, path: str, parameters: list[str]
) -> None:
    assert tree.find_parameters(module, path) == parameters


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("engine.core", "Core.gone"),
        ("engine.core", "Gone.step"),
        ("engine.gone", "run"),
        ("engine.base", "Base.limit"),
        ("engine.worker", "Circle.step"),
    ],
)
def test_what_is_no_callable_of_the_package_is_not_there(tree: SourceTree, module: str, path: str) -> None:
    assert tree.find_parameters(module, path) is None


def test_path_may_go_through_submodules(tree: SourceTree) -> None:
    assert tree.find_parameters("engine", "core.Core.step") == ["batch", "more"]
    assert tree.find_parameters("engine", "core.Nothing") is None
    assert tree.find_parameters("engine", "nothing.Core") is None
