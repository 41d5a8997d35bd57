"""The house's own rules: rooms, names, what an import loads, what a committed file may say."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import numscope
from numscope.lazy import homes_of

HOMES = homes_of(numscope.__file__)
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "numscope"
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}

# The rooms, top to bottom, written here once (docs/architecture.md refers to this table). A file imports only from its own room and from
# rooms below; rooms that stand on one line do not know each other, but for the doors: commands may use frameworks' and other tools' names.
ROOMS = (
    ("__main__",),
    ("__init__",),
    ("cli",),
    ("integrations",),
    ("compat",),
    ("scope",),
    ("inspect",),
    ("alerts",),
    ("detect",),
    ("precision",),
    ("view",),
    ("page",),
    ("runs",),
    ("replay",),
    ("parity",),
    ("config",),
    ("plugins",),
    ("probe",),
    ("distributed",),
    ("summary",),
    ("storage",),
    ("sinks", "report"),
    ("lazy",),
    ("records",),
    ("version",),
)
FLOORS = {room: floor for floor, rooms in enumerate(reversed(ROOMS)) for room in rooms}
DOCTOR = "doctor"  # apart: it knows errors, formats of records and the version, and only the commands know it
# Its own floors, top to bottom. The commands enter at the top and at explain.
DOCTORS_ROOMS = (
    ("launcher", "settings"),
    ("rank",),
    ("agent", "course"),
    ("explain",),
    ("output",),
    ("rendering",),
    ("diagnose",),
    ("redact", "findings"),
    ("child",),
    ("phases",),
    ("meet",),
    ("budget",),
    ("records",),
)
DOCTORS_FLOORS = {room: floor for floor, rooms in enumerate(reversed(DOCTORS_ROOMS)) for room in rooms}
DOCTORS_CHILD = "doctor/child/"  # a process of its own, which loads torch.distributed first of all
STANDARD_LIBRARY_ONLY = {"records", "lazy", "version"}
WITHOUT_TORCH = {*STANDARD_LIBRARY_ONLY, "storage", "page", "view", "runs", "sinks", "report", "config"}
AT_IMPORT = {"torch", "rich", "click"}  # the core dependencies: all that may be imported at a file's top level
AT_IMPORT_IN = {
    "doctor": {"pydantic", "pydantic_core", "typing_extensions", "yaml"},
    "config": {"pydantic", "pydantic_core", "yaml"},
    **{room: {"numpy"} for room in ("alerts", "page", "view")},
}  # core dependencies too, loaded with a place that itself is loaded late
ON_REQUEST = {
    "view/guard.py",
    "view/server.py",
    "storage/ranges.py",
    "integrations",
    "compat",
    "summary/triton.py",
    "summary/triton_fold.py",
}  # there, asking for the file is asking for its framework
FORBIDDEN_NAMES = {"base", "common", "const", "constants", "helper", "helpers", "manager", "misc", "util", "utils"}


def place_of(path: Path) -> str:
    """The key in FLOORS that a file of the package belongs to."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else parts[0].removesuffix(".py")


def is_place(name: str) -> bool:
    return name in FLOORS or name == DOCTOR or (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


@functools.cache
def imports(source: str, package: tuple[str, ...]) -> list[tuple[int, str, bool]]:
    """Each import anywhere in the source: line, full dotted name, whether it runs when the file is imported."""
    found: list[tuple[int, str, bool]] = []

    def visit(node: ast.AST, at_import: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = (*package[: len(package) - node.level + 1], node.module or "") if node.level else (node.module or "",)
            module = ".".join(part for part in origin if part)
            found.extend((node.lineno, f"{module}.{alias.name}", at_import) for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            at_import = False
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # imports are statements
                visit(child, at_import)

    visit(ast.parse(source), True)
    return found


def complaints(path: Path, source: str) -> list[str]:
    """What is wrong with a file's imports, a sentence each."""
    place = place_of(path)
    inside = path.relative_to(PACKAGE).as_posix()
    package = ("numscope", *path.relative_to(PACKAGE).parts[:-1])
    found = []
    for line, name, at_import in imports(source, package):
        where = f"{path.relative_to(ROOT).as_posix()}:{line}"
        top, *rest = name.split(".")
        if top != "numscope":
            if place in WITHOUT_TORCH and top == "torch":
                found.append(f"{where}: imports {name}, but {place} is a room without torch")
            if place in STANDARD_LIBRARY_ONLY and top not in sys.stdlib_module_names:
                found.append(f"{where}: imports {name}, but {place} is the standard library only")
            known = sys.stdlib_module_names | AT_IMPORT | AT_IMPORT_IN.get(place, set())
            if at_import and top not in known and not {place, inside} & ON_REQUEST:
                found.append(f"{where}: imports {name} with the file; only {', '.join(sorted(AT_IMPORT))} may be, the rest when asked for")
            if at_import and name.startswith("torch.distributed") and place != "distributed" and not inside.startswith(DOCTORS_CHILD):
                found.append(f"{where}: imports {name} with the file; put it into the function that needs it")
            continue
        target = rest[0] if rest and is_place(rest[0]) else "__init__"
        if DOCTOR == place == target and len(rest) > 1:
            room, other = path.relative_to(PACKAGE / DOCTOR).parts[0].removesuffix(".py"), rest[1]
            if room != other and DOCTORS_FLOORS.get(other, 99) >= DOCTORS_FLOORS.get(room, -1):
                found.append(f"{where}: doctor/{room} imports doctor/{other}, which is not below it")
        if target == place:
            continue
        if DOCTOR in (place, target):
            allowed = target in STANDARD_LIBRARY_ONLY if place == DOCTOR else place == "cli"
        elif target not in FLOORS or place not in FLOORS:
            continue  # test_nothing_stands_outside_the_rooms says it
        else:
            allowed = FLOORS[target] < FLOORS[place]
        if not allowed:
            found.append(f"{where}: {place} imports {target}, which is not below it")
    return found


def test_nothing_stands_outside_the_rooms() -> None:
    assert {place_of(path) for path in SOURCES} == {*FLOORS, DOCTOR}


def test_no_file_of_the_doctor_stands_outside_its_floors() -> None:
    parts = {path.relative_to(PACKAGE / DOCTOR).parts[0].removesuffix(".py") for path in SOURCES if place_of(path) == DOCTOR}
    assert parts - {"__init__"} == set(DOCTORS_FLOORS)


def test_files_import_only_from_rooms_below() -> None:
    assert [complaint for path, source in SOURCES.items() for complaint in complaints(path, source)] == []


def circles(sources: dict[str, str]) -> list[list[str]]:
    """Groups of modules that import each other, directly or around; imports inside functions and for type checkers count too."""
    arrows: dict[str, set[str]] = {}
    for module, source in sources.items():
        package = tuple(module.split(".")[:-1])
        for _, name, _ in imports(source, package):
            target = name
            while target and target not in sources:
                target = target.rpartition(".")[0]
            if target and target != module:
                arrows.setdefault(module, set()).add(target)
    reached = {module: _reach(arrows, module) for module in sources}
    found = {frozenset(other for other in reached[m] if m in reached[other]) | {m} for m in sources if m in reached[m]}
    return sorted(sorted(group) for group in found)


def _reach(arrows: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = list(arrows.get(start, ()))
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo += arrows.get(module, ())
    return found


def test_no_two_files_import_each_other() -> None:
    def name(path: Path) -> str:
        return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")

    assert circles({name(path): source for path, source in SOURCES.items()}) == []


def test_circles_are_seen() -> None:
    a, b, c = "from numscope.x import b", "def f():\n    from numscope.x.c import g", "import numscope.x.a"
    assert circles({"numscope.x.a": a, "numscope.x.b": b, "numscope.x.c": c}) == [["numscope.x.a", "numscope.x.b", "numscope.x.c"]]
    assert circles({"numscope.x.a": a, "numscope.x.b": b, "numscope.x.c": ""}) == []


@pytest.mark.parametrize(
    ("place", "source", "part"),
    [
        ("report/frames.py", "from numscope.scope.scope import Scope", "report imports scope, which is not below it"),
        ("report/frames.py", "def f():\n    import numscope.summary.ledger", "frames.py:2: report imports summary"),
        ("report/frames.py", "from ..sinks import protocol", "report imports sinks"),
        ("report/frames.py", "if TYPE_CHECKING:\n    from numscope.scope import scope", "imports scope"),
        ("report/frames.py", "def f():\n    import torch", "without torch"),
        ("summary/ledger.py", "import numscope", "imports __init__"),
        ("summary/ledger.py", "import numpy", "only click, rich, torch"),
        ("summary/ledger.py", "from torch import distributed as dist", "torch.distributed with the file"),
        ("records/finding.py", "def f():\n    import rich", "standard library only"),
        ("doctor/output.py", "from numscope.summary.ledger import Ledger", "doctor imports summary"),
        (
            "doctor/meet/wire.py",
            "from numscope.doctor.phases.links import Examiner",
            "doctor/meet imports doctor/phases, which is not below it",
        ),
    ],
)
def test_rooms_test_sees_a_breach(place: str, source: str, part: str) -> None:
    found = complaints(PACKAGE / place, source)
    assert len(found) == 1
    assert part in found[0]


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("report/frames.py", "from .text import table\nfrom ..records.finding import Frame\nimport rich"),
        ("scope/scope.py", "from numscope.report import text\nfrom numscope.version import __version__"),
        ("integrations/transformers.py", "import transformers\nfrom numscope.scope.scope import Scope"),
        ("summary/ledger.py", "def f():\n    import torch.distributed, numpy"),
        ("cli/run.py", "from numscope.doctor import output"),
    ],
)
def test_rooms_test_lets_a_right_import_pass(place: str, source: str) -> None:
    assert not complaints(PACKAGE / place, source)


IN_TRAINING = ("probe", "detect", "replay", "alerts", "inspect", "scope", "summary", "sinks", "report", "distributed", "plugins", "records")
PASSING = {"Unsummarizable", "FileNotFoundError", "FileExistsError", "AttributeError", "OverflowError", "BdbQuit", "_Other"}  # narrow kinds
ELSEWHERE = {"records/faults.py", "replay/fork.py"}  # what tells, and what runs in a process of its own
# What a script's own exceptions are made of: a handler of a signal raises them, and they are raised where our code runs.
BROAD = {"Exception", "OSError", "RuntimeError", "ValueError", "TypeError", "ArithmeticError", "NotImplementedError", "TimeoutError"}


def unguarded(source: str) -> list[int]:
    """Lines that would catch the script's own exceptions together with ours: they lack ``ours()``, and don't raise again."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(isinstance(kind, ast.Name) and kind.id in BROAD for kind in kinds):
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "contextlib.suppress":
            found.append(node.lineno)
    return found


def test_guards_let_the_scripts_own_exceptions_pass() -> None:
    found = []
    for path, source in SOURCES.items():
        name = path.relative_to(PACKAGE).as_posix()
        if place_of(path) in IN_TRAINING and name not in ELSEWHERE:
            lines = source.split("\n")
            found += [f"{name}:{line}" for line in unguarded(source) if not set(re.findall(r"\w+", lines[line - 1])) & PASSING]
    assert found == [], "use ours() or suppress of numscope.records.faults"


def test_guards_that_would_catch_the_scripts_own_are_seen() -> None:
    bad = [
        "try: f()\nexcept Exception: pass",
        "try: f()\nexcept (KeyError, OSError) as error: pass",
        "with contextlib.suppress(OSError): f()",
    ]
    good = [
        "try: f()\nexcept ours(): pass",
        "try: f()\nexcept ours(OSError) as error: pass",
        "with suppress(OSError): f()",
        "try: f()\nexcept KeyError: pass",
    ]
    assert [len(unguarded(source)) for source in bad] == [1] * 3
    assert [len(unguarded(source)) for source in good] == [0] * 4


def test_file_names_say_what_is_in_them() -> None:
    stems = {path.stem: path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")}
    assert not FORBIDDEN_NAMES & set(stems), "name a file after its one concept"


def test_names_that_stand_twice_are_those_of_the_architectures_table() -> None:
    named = [path.name for path in SOURCES if not path.name.startswith("__")]
    named += [node.name for source in SOURCES.values() for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text[text.index("| name | stands for |") :].partition("\n\n")[0]
    assert {name for name, number in Counter(named).items() if number > 1} == set(re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE))


def test_files_hold_one_concept_each() -> None:
    num_lines = {path.relative_to(ROOT).as_posix(): len(source.splitlines()) for path, source in SOURCES.items()}
    assert {name: lines for name, lines in num_lines.items() if lines > 450} == {}, "no file much above 400 lines: split it by concept"


# --------------------------------------------------------------------------------------------------------------------------


def loaded_by(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after the statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_numscope_loads_nothing_but_itself() -> None:
    new = loaded_by("import numscope") - loaded_by("import importlib, typing")
    others = {name for name in new if name.partition(".")[0] not in sys.stdlib_module_names}
    assert others == {"numscope", "numscope.lazy", "numscope.version"}


def test_import_of_the_scope_loads_no_more_of_torch_distributed_than_torch_does() -> None:
    with_torch = loaded_by("import torch")
    new = loaded_by("import numscope; numscope.watch") - with_torch
    assert not {name for name in new if name.startswith("torch.distributed")}
    absent = ("transformers", "accelerate", "tensorboard", "pandas", "pyarrow", "tensorflow", "triton")
    assert not {name for name in new if name.partition(".")[0] in absent}


def test_command_line_loads_torch_only_for_a_script_that_does() -> None:
    assert "torch" not in loaded_by("import numscope.cli.command, numscope.cli.run, numscope.cli.script")


def test_public_names_are_those_of_the_stub() -> None:
    assert numscope.__all__ == dir(numscope) == sorted(HOMES)


def test_public_names_are_there() -> None:
    assert {name: getattr(numscope, name).__module__ for name in HOMES if name != "__version__"} == {
        name: home for name, home in HOMES.items() if name != "__version__"
    }


def test_unknown_public_name_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"^module 'numscope' has no attribute 'wach'\. Did you mean 'watch'\?$"):
        _ = numscope.wach  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'xyzzy', expected one of Alert, AlertError, Culprit, Finding, "):
        _ = numscope.xyzzy  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------------------------------------


@functools.cache
def committed_texts() -> dict[str, str]:
    """Every text file that git tracks, or would track once added, by name."""
    texts = {}
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0"):
        path = ROOT / name
        if name and path.is_file():
            data = path.read_bytes()
            if b"\0" not in data:
                texts[name] = data.decode("utf-8")
    return texts


MACHINE_PATH = re.compile(
    r"""(?<![\w.}$/*])/(?:home|root|Users|tmp|work|opt|mnt|srv|data|scratch)\b(?=[/\s"'`:,)]|$)"""  # a root folder's name
    r"""|\b[A-Z]:\\\w""",  # a Windows drive
    re.MULTILINE,
)


def test_no_committed_file_names_a_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing is committed")
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for name, text in committed_texts().items()
        for match in MACHINE_PATH.finditer(text)
    ]
    assert not found


# The folders' names stand apart from their slash, so that this file passes its own test.
@pytest.mark.parametrize(("text", "root"), [("open('/{}/ann/x')", "home"), ("/{}/x", "tmp"), ("at /{}:", "opt"), ("{}:\\Users", "C")])
def test_machine_path_is_recognized(text: str, root: str) -> None:
    assert MACHINE_PATH.search(text.format(root))


@pytest.mark.parametrize("text", ["#!/usr/bin/env bash", "src/data/x", "tmp_path / 'x'", "https://a.org/home/x", "$HOME/data/x"])
def test_innocent_path_is_not_a_machine_path(text: str) -> None:
    assert not MACHINE_PATH.search(text)


def test_constraints_pin_each_package_exactly_and_name_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    pin = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; python_version (>=|<) \"3\.\d+\")?")
    assert [line for line in pins if not pin.fullmatch(line)] == []
    assert "torch==2.13.0" in pins
    assert "://" not in "\n".join(lines)


@pytest.mark.parametrize("path", sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("examples/*.py")]), ids=lambda path: path.name)
def test_names_that_a_script_imports_are_there(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "numscope":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}"), (node.module, alias.name)


def test_no_committed_file_has_the_marks_of_a_merge() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing is committed")
    mark = re.compile("^(<{7}|>{7}) ", re.MULTILINE)
    assert [name for name, text in committed_texts().items() if mark.search(text)] == []


def test_paths_in_the_architecture_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.\w+)?)`", text))
    assert len(named) > 50
    gone = [path for path in named if not any((place / path).exists() for place in (ROOT, PACKAGE, ROOT / "benchmarks"))]
    assert gone == []
