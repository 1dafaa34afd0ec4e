"""A graph as part of a file of its own: emitted numpy source with all it calls, gradof left out.

>>> print(standalone([emit(graph, "numpy", "f")]))      # f computes y = gather(x, index)
def _grid(index, dim):
    ...

def gather(x, index, *, dim):
    result = x[_grid(index, dim)]
    return result

def f(x, index):
    ...

Lowerings that are Python functions are copied with what they use of their module: other functions,
constants, imports. Annotations are dropped, since what they name would have to be imported too.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from gradof.codegen.lowering.numpy import literal
from gradof.codegen.machine.executable import Executable
from gradof.errors import CodegenError

MAX_CONSTANT = 4096  # elements; a file with more is no longer one to read
_ALLOWED = ("numpy", "math", "itertools", "functools", "importlib", "operator")
_KNOWN = {*vars(builtins), "np"}


def standalone(runs: Sequence[Executable]) -> str:
    """Source of all executables with their helpers, to follow `import numpy as np`.

    Raises CodegenError where something they call cannot be copied: a function made at run time,
    one that needs another library, a large constant; or two helpers have one name.
    """
    copier = _Copier({run.name for run in runs})
    for run in runs:
        namespace = run.function.__globals__
        for name in _globals_of(ast.parse(run.source)):
            copier.bind(name, namespace[name])
    parts = [*copier.imports, *copier.parts, *(run.source for run in runs)]
    return "\n\n".join(part.rstrip() + "\n" for part in parts)


class _Copier:
    def __init__(self, reserved: set[str]) -> None:
        self.imports: list[str] = []
        self.parts: list[str] = []
        self.done: dict[str, object] = dict.fromkeys(reserved)  # name → what it means in the file

    def bind(self, name: str, value: Any) -> None:
        """Define a name of the emitted source."""
        if not self.claim(name, id(value)):
            return
        if isinstance(value, np.ndarray | np.generic):
            self.parts.append(f"{name} = {_array(name, np.asarray(value))}")
        elif isinstance(value, np.ufunc) and getattr(np, name, None) is value:
            self.parts.append(f"{name} = np.{name}")
        elif isinstance(value, FunctionType) and value.__name__.isidentifier():
            self.function(name, value)
        else:
            raise CodegenError(f"{name} cannot be exported: {value!r} has no source")

    def function(self, name: str, function: FunctionType) -> None:
        module = sys.modules[function.__module__]
        statement = _top_level(module).get(function.__name__)
        if function.__closure__ or not isinstance(statement, ast.FunctionDef):
            raise CodegenError(f"{name} cannot be exported: its lowering is made at run time")
        self.definition(name, statement, module)

    def definition(self, name: str, statement: ast.stmt, module: ModuleType) -> None:
        """A top-level statement of a module, after what it uses."""
        statement = _Plain().visit(ast.parse(ast.unparse(statement)).body[0])
        if isinstance(statement, ast.FunctionDef):
            statement.name = name
        for used in _globals_of(statement):
            if used != name:
                self.needed(used, module)
        self.parts.append(ast.unparse(ast.fix_missing_locations(statement)))

    def needed(self, name: str, module: ModuleType) -> None:
        """Define a name that a copied function uses, as its module has it."""
        statement = _top_level(module).get(name)
        if statement is None:
            raise CodegenError(f"{module.__name__}.{name} cannot be exported: it has no source")
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self.imported(name, statement, module)
        elif self.claim(name, (module.__name__, name)):
            self.definition(name, statement, module)

    def imported(self, name: str, statement: ast.Import | ast.ImportFrom, user: ModuleType) -> None:
        source = statement.module if isinstance(statement, ast.ImportFrom) else None
        if source and source.startswith("gradof."):
            self.needed(name, sys.modules[source])
            return
        roots = [source] if source else [a.name for a in statement.names]
        if any(str(r).partition(".")[0] not in _ALLOWED for r in roots):
            raise CodegenError(
                f"{user.__name__} uses {name} of {roots[0]}, which an exported file does not import"
            )
        text = ast.unparse(statement)
        if text not in self.imports:
            self.imports.append(text)

    def claim(self, name: str, meaning: object) -> bool:
        """Whether the name is new; CodegenError if it already means something else."""
        if name not in self.done:
            self.done[name] = meaning
            return True
        if self.done[name] != meaning:
            raise CodegenError(f"two things called {name} would be in one file")
        return False


class _Plain(ast.NodeTransformer):
    """Drops annotations, and imports inside functions are refused."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.Assign(targets=[node.target], value=node.value)

    def visit_Import(self, node: ast.Import) -> Any:
        raise CodegenError(f"an exported file does not {ast.unparse(node)}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        raise CodegenError(f"an exported file does not {ast.unparse(node)}")


@functools.cache
def _top_level(module: ModuleType) -> dict[str, ast.stmt]:
    """The statement of a module that gives each of its names a meaning."""
    found: dict[str, ast.stmt] = {}
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            found.update((a.asname or a.name, statement) for a in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = (
                statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            )
            found.update((t.id, statement) for t in targets if isinstance(t, ast.Name))
    return found


def _globals_of(tree: ast.AST) -> list[str]:
    """Names a piece of source reads and does not define itself, in order."""
    nodes = list(ast.walk(tree))
    own = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    own |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    own |= {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    read = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return [name for name in dict.fromkeys(read) if name not in own | _KNOWN]


def _array(name: str, value: np.ndarray[Any, Any]) -> str:
    if value.size > MAX_CONSTANT:
        raise CodegenError(
            f"the constant {name} has {value.size} elements", hint="pass it as an argument"
        )
    inner = ", ".join(literal(v) for v in value.ravel().tolist())
    shaped = "" if value.ndim == 1 else f".reshape({value.shape})"
    return f"np.array([{inner}], np.{value.dtype.type.__name__}){shaped}"
