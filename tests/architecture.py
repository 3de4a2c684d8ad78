"""What can be counted about the architecture: `python -m tests.architecture [SRC]` prints docs/architecture.md's table.

SRC is a folder that holds the package `fedpca`: this checkout's own, if none is given.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

from tests.test_one_place import FILES

SRC = Path(__file__).parents[1] / "src"
GENERIC = (  # code that serves every method: it asks parts what they can do, never who they are
    "loop.py",
    "simulate/**/*.py",
    "sites/**/*.py",
    "runs/**/*.py",
    "methods/combine.py",
    "parts/sides.py",
    "results/**/*.py",
)
# where that code was in version 0.1
GENERIC_BEFORE = ("simulate.py", "parts/joint.py", "parts/team.py", "parts/combine.py", "deploy/over.py", "methods.py")
# in version 0.1: a method in catalogue, methods, page, families, … (issue 15); a metric's name in eighteen modules
TOUCHED_BEFORE = {"method": "up to 10", "metric": 18, "corruption": 2, "figure": 2}


@dataclass(frozen=True)
class Measure:
    """One row of the table."""

    name: str
    before: int | str  # at the last commit of version 0.1
    now: int
    most: int | None = None  # what the design allows

    @property
    def holds(self) -> bool:
        return self.most is None or self.now <= self.most


def measure(src: Path = SRC) -> list[Measure]:
    """Every measure of the package in this folder."""
    package = src / "fedpca"
    files = sorted(package.rglob("*.py"))
    loop = package / "loop.py"
    lengths = sorted(length for length, _ in functions(package))
    return [
        Measure("modules at the top", 27, len(top_modules(package)), 7),
        Measure("lines of `loop.py`", 164, lines_of(loop), 120),
        Measure("parts, methods and models that `loop.py` imports", 6, len(imported_parts(loop)), 0),
        Measure("type checks on parts in generic code", 15, len(type_checks(package)), 0),
        Measure("defaults written in parts (their one place is the settings)", 65, len(defaults(package / "parts")), 0),
        *(Measure(f"files to touch for a {kind}", TOUCHED_BEFORE[kind], touched(kind), 1) for kind in FILES),
        Measure("folders that know the engine (Flower)", 1, len(folders_that_import(package, "flwr")), 1),
        Measure("lines of `src`", 16828, sum(map(lines_of, files)), 16827),
        Measure("of these, lines of code", 10409, sum(map(code_lines, files))),
        Measure("files", 114, len(files)),
        Measure("files of more than 300 lines", 8, sum(lines_of(path) > 300 for path in files)),
        Measure("lines of the longest file", 449, max(map(lines_of, files))),
        Measure("functions with a body of more than 25 lines", 3, sum(length > 25 for length in lengths)),
        Measure("lines of the longest function's body", 31, lengths[-1]),
    ]


def touched(kind: str) -> int:
    """The files with which `test_one_place` adds a thing of this kind: the modules that its entry point names."""
    return len({FILES[kind].module})


def folders_that_import(package: Path, name: str) -> set[str]:
    """The folders of the package in which another package is imported."""
    return {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if any(imported.split(".")[0] == name for imported in imports(path))
    }


def top_modules(package: Path) -> list[str]:
    """Modules beside the folders; not those that Python gives a meaning."""
    return sorted(path.stem for path in package.glob("*.py") if not path.stem.startswith("__"))


def imported_parts(path: Path) -> list[str]:
    """Everything that a file imports from `parts`, `methods` or `models`, at its top or inside a function."""
    return [name for name in imports(path) if name.split(".")[1:2] in (["parts"], ["methods"], ["models"])]


def imports(path: Path) -> list[str]:
    """Dotted names of everything that a file imports."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def type_checks(package: Path) -> list[str]:
    """Where generic code asks for the class of a part: `isinstance` or `case` of a class that `parts` or `methods`
    define, and `type(…) is` of anything but a built-in type or a layer of PyTorch's."""
    classes = classes_of_parts(package)
    globs = GENERIC if (package / "simulate").is_dir() else (*GENERIC[:1], *GENERIC_BEFORE, GENERIC[-1])
    return [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in sorted({path for glob in globs for path in package.glob(glob)})
        for node in ast.walk(tree_of(path))
        if asks_for_class(node, classes)
    ]


def asks_for_class(node: ast.AST, classes: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]):
            return not classes.isdisjoint(names_in(asked))
        case ast.MatchClass(cls=asked):
            return not classes.isdisjoint(names_in(asked))
        case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[asked]):
            layer = isinstance(asked, ast.Attribute) and names_in(asked.value) == {"nn"}
            return not layer and not hasattr(builtins, getattr(asked, "id", ""))
    return False


def classes_of_parts(package: Path) -> set[str]:
    """The names of all classes that `parts` and `methods` define."""
    files = [*package.glob("parts/**/*.py"), *package.glob("methods/**/*.py"), *package.glob("methods.py")]
    return {node.name for path in files for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)}


def defaults(folder: Path) -> list[str]:
    """Fields and parameters whose default is a number, a word or a truth value: settings alone should have those."""
    return [
        f"{path.relative_to(folder)}:{value.lineno}"
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(tree_of(path))
        for value in default_values(node)
        if is_literal(value)
    ]


def default_values(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.arguments):
        yield from (value for value in (*node.defaults, *node.kw_defaults) if value)
    elif isinstance(node, ast.ClassDef):
        fields = [field for field in node.body if isinstance(field, ast.AnnAssign) and field.value]
        yield from (field.value for field in fields if field.value and "ClassVar" not in names_in(field.annotation))


def is_literal(value: ast.expr) -> bool:
    """A number, a word or a truth value, or a tuple of them; not None, which says that there is none."""
    match value:
        case ast.Constant(value=constant):
            return constant is not None
        case ast.UnaryOp(operand=operand):
            return is_literal(operand)
        case ast.Tuple(elts=items):
            return any(map(is_literal, items))
    return False


def functions(package: Path) -> Iterator[tuple[int, str]]:
    """The lines of every function's body, its docstring left out, and where it is."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                yield length, f"{path.relative_to(package)}:{node.lineno} {node.name}"


def names_in(node: ast.AST) -> set[str]:
    """All names in an expression, and the last word of those with dots."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comment, docstring or import."""
    lines = path.read_text(encoding="utf-8").splitlines()
    passed = {number for number, line in enumerate(lines, 1) if not line.strip() or line.strip().startswith("#")}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import | ast.ImportFrom) or is_text(node):
            passed.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines) - len(passed)


def is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether a statement is nothing but a string, as docstrings are."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def table(rows: list[Measure]) -> str:
    """In Markdown."""
    head = ["| | version 0.1 | now | at most |", "| --- | ---: | ---: | ---: |"]
    return "\n".join(
        head + [f"| {row.name} | {row.before} | {row.now} | {'' if row.most is None else row.most} |" for row in rows]
    )


def main() -> None:
    src = Path(sys.argv[1]) if len(sys.argv) > 1 else SRC
    print(table(measure(src)))
    for place in (*type_checks(src / "fedpca"), *defaults(src / "fedpca" / "parts")):
        print(place, file=sys.stderr)
    for length, place in sorted(functions(src / "fedpca"))[-12:]:
        print(length, place, file=sys.stderr)


if __name__ == "__main__":
    main()
