"""docs/liger.md: a row for each operator of Liger-Kernel, and a reason for each public name that Tigon does not have.
liger_names.txt has those names of release 0.8.5, and is held to the package where that is installed."""

import ast
import fnmatch
import importlib
import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

import tigon.compat.liger  # noqa: F401

HERE = Path(__file__).parent
NAMES = [tuple(line.split()) for line in (HERE / "liger_names.txt").read_text().splitlines()]
DOCS, README = (HERE.parents[1] / file for file in ("docs/liger.md", "README.md"))


def public(package: Path):
    """[(path, name)] of Liger-Kernel's public API, in the order of their names. The source is read and not imported,
    which would want triton."""
    found = set()
    files = [package / f"{folder}/__init__.py" for folder in ("chunked_loss", "ops", "transformers")]
    for folder in ("chunked_loss", "ops", "ops/experimental", "transformers", "transformers/experimental"):
        files += (package / folder).glob("[a-z]*.py")
    for file in files:
        body = ast.parse(file.read_text()).body
        path = ".".join(file.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
        imports = [node for node in body if isinstance(node, ast.ImportFrom)]
        names = [alias.asname or alias.name for node in imports for alias in node.names]
        if path == "transformers":  # which says what is public
            constants = [n for node in body if _listed(node) for n in ast.walk(node) if isinstance(n, ast.Constant)]
            names = [n.value for n in constants]
        elif file.name != "__init__.py":
            functions = path.startswith(("transformers", "ops.experimental"))  # kernels apart
            kinds = (ast.ClassDef, ast.FunctionDef) if functions else ast.ClassDef
            found_here = [n for n in body if isinstance(n, kinds) and not n.name.startswith("_")]
            names = [n.name for n in found_here if isinstance(n, ast.ClassDef) or not n.decorator_list]
            targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]  # other names of these
            names += [t.id for t in targets if getattr(t, "id", "").startswith(("Liger", "liger_"))]
        found |= {(path, name) for name in names if isinstance(name, str)}
    return sorted(found)


def _listed(node):
    """__all__ = [..], and __all__.extend([..]) within an if."""
    return "__all__" in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def table(heading, level="##"):
    """The rows below a heading, as lists of cells."""
    section = DOCS.read_text().partition(f"\n{level} {heading}\n")[2].partition("\n##")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


ROWS = table("Liger-Kernel's operators against Tigon's")
REASONS = {name: row[1] for row in table("Not given", "###") for name in quoted(row[0])}


def given(path, name):
    try:
        return hasattr(importlib.import_module(f"tigon.compat.liger.{path}"), name)
    except ImportError:
        return False


def test_names_are_given_or_have_a_reason():
    missing = {name for path, name in NAMES if not given(path, name)}
    unexplained = {name for name in missing if not any(fnmatch.fnmatchcase(name, pattern) for pattern in REASONS)}
    assert not unexplained
    assert all(REASONS.values())
    assert not [pattern for pattern in REASONS if not fnmatch.filter(missing, pattern)]  # given by now


def test_operators_have_a_row():
    operator = re.compile(r"ops\.experimental\..*|ops\..* .*Function")
    files = {path.partition(".")[2] for path, name in NAMES if operator.fullmatch(f"{path} {name}")}
    files |= {path for path, name in NAMES if path.startswith("chunked_loss.") and name.endswith("Loss")}
    assert sorted(row[0] for row in ROWS) == sorted(f"`{file}`" for file in files)
    assert all(len(row) == 4 and all(row) for row in ROWS)


def devices():
    """{operator: where all of its entries run}, from the matrix of README.md, which another test holds to the library."""
    found, order = {}, {"CPU": "cpu", "CUDA": "cuda", "Ascend": "ascend-sim"}
    _, block, *_ = re.split("<!-- .* -->\n", README.read_text())
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    for cells in lines:
        marks = dict(zip(head, cells))
        found[cells[0].strip("`")] = {name for name, column in order.items() if marks[column] == "✓"}
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_devices(row):
    operators, where = quoted(row[1]), devices()
    if not operators:
        assert row[1:3] == ["PyTorch's int8 product", "CPU, CUDA"]
        return
    here = set.intersection(*(where[operator] for operator in operators))
    assert row[2].split(", ") == [name for name in ("CPU", "CUDA", "Ascend") if name in here]


def test_recorded_names():
    spec = importlib.util.find_spec("liger_kernel")
    if spec is None or importlib.metadata.version("liger_kernel") != "0.8.5":
        pytest.skip("Liger-Kernel 0.8.5 is not installed")
    assert public(Path(spec.origin).parent) == NAMES
