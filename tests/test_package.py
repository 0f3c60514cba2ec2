"""The front door: what importing the package costs and what it lists."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tangentlens

HEAVY = ("torch", "numpy", "xarray", "zarr", "scipy", "plotly")


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after one statement."""
    code = f"{statement}\nimport sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_after("import tangentlens").intersection(HEAVY)


def test_importing_the_command_line_loads_no_network_library() -> None:
    assert not loaded_after("import tangentlens.cli").intersection(HEAVY)


def test_a_first_kernel_loads_no_compiler_and_no_algebra() -> None:
    """torch would import sympy for the shapes of a gradient, and its compiler for a mode: a second and 100 MB."""
    kernel = (
        "import torch; from tangentlens.kernels import entk_full; entk_full(torch.nn.Linear(2, 2), torch.ones(2, 2))"
    )
    assert not loaded_after(kernel) & {"sympy", "mpmath"}


def test_a_report_can_be_written_where_torch_is_not_loaded() -> None:
    assert "torch" not in loaded_after("import tangentlens.report")


@pytest.mark.parametrize("name", tangentlens.__all__)
def test_every_listed_name_exists_and_says_what_it_is(name: str) -> None:
    thing = getattr(tangentlens, name)
    if callable(thing):
        assert (thing.__doc__ or "").strip(), f"{name} has no docstring"


def test_the_listing_is_what_dir_shows() -> None:
    assert set(tangentlens.__all__) <= set(dir(tangentlens))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        tangentlens.no_such_thing  # noqa: B018


def test_type_checkers_see_the_same_names_as_the_interpreter() -> None:
    tree = ast.parse(Path(tangentlens.__file__).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (alias.name, statement.module)
        for statement in checked.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == {(name, module) for module, names in tangentlens._CONTENTS.items() for name in names}


def test_every_word_of_the_vocabulary_is_one_lower_case_word() -> None:
    axes = import_module("tangentlens.axes").AXES
    assert all(word.isidentifier() and word == word.lower() for word in axes)
