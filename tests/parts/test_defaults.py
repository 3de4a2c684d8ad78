"""Defaults live in the methods' settings alone: no part has a number, word or switch of its own."""

import ast
from pathlib import Path

import pytest

from fedpca import parts

MODULES = sorted(Path(parts.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: "/".join(path.parts[-2:]))
def test_parts_have_no_defaults(module: Path):
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            values = {ast.unparse(field.target): field.value for field in node.body if isinstance(field, ast.AnnAssign)}
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            names = [argument.arg for argument in node.args.args]
            values = dict(zip(reversed(names), reversed(node.args.defaults), strict=False))
        else:
            continue
        for name, value in values.items():
            known = isinstance(value, ast.Constant) and value.value is not None
            assert not known, f"{node.name}.{name} = {ast.unparse(value)}: it belongs into the method's settings"
