"""``numscope run script`` against ``python script``: the same stdout, stderr and exit status, byte for byte."""

from __future__ import annotations

import os
import py_compile
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import numscope
from tests.warm import COLD

SOURCES = str(Path(numscope.__file__).parent.parent)


@dataclass
class Ended:
    status: int
    stdout: str
    stderr: str


def end(command: Sequence[str], cwd: Path, stdin: str = "") -> Ended:
    env = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, timeout=60)
    # what numscope says of itself is no part of the comparison
    stderr = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("numscope: nothing was watched"))
    return Ended(done.returncode, done.stdout, stderr)


Same = Callable[..., Ended]


@pytest.fixture
def same(tmp_path: Path) -> Same:
    """Runs what stands after ``python`` both ways in a folder, compares all that can be seen, returns it."""

    def compare(*words: str, flags: Sequence[str] = (), stdin: str = "") -> Ended:
        bare = end([COLD, *flags, *words], tmp_path, stdin)
        watched = end([COLD, *flags, "-m", "numscope", "run", *words], tmp_path, stdin)
        assert watched == bare
        return bare

    return compare


def write(folder: Path, name: str, source: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    return name


IDENTITY = '''
    """Who am I."""
    import inspect, sys
    class Here:
        """It."""
    print(__name__, __doc__, sys.argv, sys.path, __file__, __package__, __builtins__, type(__loader__), list(globals()))
    main = sys.modules["__main__"]
    print(__spec__ and (__spec__.name, __spec__.origin), main.__dict__ is globals(), main.Here is Here)
    print(inspect.getsource(Here), Here.__module__, inspect.getfile(Here), sys.flags, sys.meta_path[-1])
'''


def test_script_finds_itself_as_python_would_show_it(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "s.py", IDENTITY)
    ended = same("s.py", "--json", "x", "-m", "--", "--help")
    assert ended.stdout.startswith("__main__ Who am I. ['s.py', '--json', 'x', '-m', '--', '--help']")


@pytest.mark.parametrize("spelled", ["./s.py", "deep/../s.py", "deep/s.py", "deep/link.py", "./deep/./s.py"])
def test_script_by_any_spelling_of_its_path(same: Same, tmp_path: Path, spelled: str) -> None:
    write(tmp_path, "s.py", IDENTITY)
    write(tmp_path, "deep/s.py", IDENTITY)
    (tmp_path / "deep" / "link.py").symlink_to("../s.py")
    assert same(spelled).status == 0


def test_script_by_absolute_path(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "deep/s.py", IDENTITY)
    assert str(tmp_path / "deep") in same(str(tmp_path / "deep" / "s.py")).stdout


def test_script_imports_its_neighbors(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "deep/s.py", "import neighbor; print(neighbor.__file__)")
    write(tmp_path, "deep/neighbor.py", "print(__name__)")
    assert same("deep/s.py").stdout.startswith("neighbor\n")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P came with Python 3.11")
def test_safe_path_leaves_the_scripts_folder_out(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "deep/s.py", IDENTITY)
    same("deep/s.py", flags=["-P"])


def test_script_reads_stdin(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "s.py", "print(input(), input())")
    assert same("s.py", stdin="a\nb\n").stdout == "a b\n"


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        ("sys.exit()", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(5)", 5),
        ("sys.exit(-1)", 255),
        ("sys.exit(256 + 4)", 4),
        ("sys.exit(True)", 1),
        ("sys.exit('a message')", 1),
        ("sys.exit(['a', 2.5])", 1),
        ("raise SystemExit", 0),
        ("exit(6)", 6),
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -signal.SIGINT),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("try:\n    1 / 0\nfinally:\n    sys.exit(8)", 8),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", 9),
    ],
)
def test_exit_status(same: Same, tmp_path: Path, statement: str, status: int) -> None:
    write(tmp_path, "s.py", f"import os, signal, sys, time\nprint('before', flush=True)\n{statement}\n")
    assert same("s.py").status == status


def test_signal_handlers_are_pythons_own(same: Same, tmp_path: Path) -> None:
    write(
        tmp_path,
        "s.py",
        "import signal\nfor name in 'INT', 'TERM', 'HUP', 'PIPE', 'CHLD':\n    print(signal.getsignal(signal.Signals[f'SIG{name}']))",
    )
    assert same("s.py").stdout.count("\n") == 5


FAULTS = {
    "raised": "def f():\n    raise ValueError('bad', 1)\nf()",
    "cause": "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('second') from e",
    "context": "def f():\n    try:\n        {}['a']\n    finally:\n        int('x')\nf()",
    "no_context": "try:\n    {}['a']\nexcept KeyError:\n    raise RuntimeError('second') from None",
    "imported": "import other\nother.f()",
    "in_library": "import json\njson.loads('{')",
    "import_error": "import nothing_of_this_name",
    "expression": "x = {'a': None}\nprint(x['a']['b'] + 1)",
    "syntax": "print('never')\nif True\n    pass",
    "indentation": "if True:\npass",
    "own_class": "class Mine(Exception):\n    pass\nraise Mine",
    "unprintable": "class Mine(Exception):\n    def __str__(self):\n        raise 1\nraise Mine",
    "name_hint": "import math\nmath.sqroot(2)",
    "hook": "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t, v, tb.tb_lineno, tb.tb_frame.f_code.co_name)\n1 / 0",
    "broken_hook": "import sys\ndef hook(t, v, tb):\n    1 / 0\nsys.excepthook = hook\nint('x')",
    "exiting_hook": "import sys\ndef hook(t, v, tb):\n    sys.exit(11)\nsys.excepthook = hook\nint('x')",
    "last": "import atexit, sys\natexit.register(lambda: print(sys.last_type, sys.last_value, sys.last_traceback.tb_lineno))\n1 / 0",
    "interrupt": "def f():\n    raise KeyboardInterrupt('now')\nf()",
    "thread": "import threading\nt = threading.Thread(target=int, args=('x',), name='T')\nt.start(); t.join(); print('on')",
}
if sys.version_info >= (3, 11):
    FAULTS["group"] = (
        "def f():\n    try:\n        1 / 0\n    except Exception as e:\n        raise ExceptionGroup('two', [e, ValueError(2)])\nf()"
    )
    FAULTS["note"] = "e = ValueError('x')\ne.add_note('look here')\nraise e"


@pytest.mark.parametrize("fault", FAULTS)
def test_uncaught_error_prints_as_python_prints_it(same: Same, tmp_path: Path, fault: str) -> None:
    write(tmp_path, "other.py", "def f():\n    raise OSError(2, 'No such thing')\n")
    write(tmp_path, "s.py", FAULTS[fault])
    assert same("s.py").status != 0 or fault == "thread"


@pytest.mark.parametrize(
    "source",
    [
        b'print("caf\xe9")\n',
        b"x = 1\n\n# \xff\n",
        b"# coding: latin-1\nprint('caf\xe9')\n",
        b"# coding: utf-8\nprint('caf\xe9')\n",
        b"# coding: nope\n",
    ],
    ids=["first line", "third line", "declared", "declared wrongly", "unknown"],
)
def test_source_in_another_encoding(same: Same, tmp_path: Path, source: bytes) -> None:
    (tmp_path / "s.py").write_bytes(source)
    same("s.py")


def test_uncaught_error_in_a_module_run_by_name(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "pack/inner.py", FAULTS["raised"])
    write(tmp_path, "pack/__init__.py", "print('package', __name__)")
    assert "runpy" in same("-m", "pack.inner").stderr


def test_nothing_to_run(same: Same, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    bare = end([COLD, "nope.py"], tmp_path)
    watched = end([COLD, "-m", "numscope", "run", "nope.py"], tmp_path)
    assert bare.status == watched.status == 2
    assert watched.stderr == f"numscope: can't open file {str(tmp_path / 'nope.py')!r}: [Errno 2] No such file or directory\n"
    write(tmp_path, "train.py", "pass")
    assert end([COLD, "-m", "numscope", "run", "trian.py"], tmp_path).stderr.endswith("directory. Did you mean 'train.py'?\n")
    for words, said in (
        (["empty"], "empty: a folder or zip file without __main__.py, expected a script."),
        (["python", "train.py"], "python: no file of that name, expected a script. Leave it out: numscope run stands for python."),
        (["torchrun", "train.py"], "Put it in front: torchrun … -m numscope run train.py ARGS…."),
    ):
        ended = end([COLD, "-m", "numscope", "run", *words], tmp_path)
        assert (ended.status, ended.stderr.count("\n")) == (2, 1)
        assert ended.stderr.endswith(f"{said}\n")
    same("-m", "nope")
    same("-m", "nope.inner")
    same("-m", "empty")


def test_module_by_name(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "alone.py", IDENTITY)
    write(tmp_path, "pack/__init__.py", "")
    write(tmp_path, "pack/__main__.py", IDENTITY + "\n    from . import inner")
    write(tmp_path, "pack/inner.py", IDENTITY)
    assert same("-m", "alone", "--json", "-m", "x").status == 0
    assert same("-m", "pack", "a").status == 0
    assert same("-m", "pack.inner", "--help").status == 0


def test_folder_and_zip_with_a_main(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "app/__main__.py", IDENTITY.replace("inspect.getsource(Here), ", "") + "\n    import inner\n")
    write(tmp_path, "app/inner.py", "print(__name__)")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as file:
        for name in ("__main__.py", "inner.py"):
            file.write(tmp_path / "app" / name, name)
    assert same("app", "x").status == 0
    assert same("app.zip", "x").status == 0


def test_script_that_was_compiled(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "s.py", "import sys; print(sys.argv, __file__, __loader__.__class__.__name__)")
    py_compile.compile(str(tmp_path / "s.py"), str(tmp_path / "s.pyc"))
    assert same("s.pyc", "a").stdout.endswith("SourcelessFileLoader\n")


def test_script_from_a_pipe(same: Same) -> None:
    assert same("/dev/stdin", "a", stdin="import sys; print(sys.argv, __file__)").stdout == "['/dev/stdin', 'a'] /dev/stdin\n"


def test_exit_handlers_and_threads_come_after_the_script(same: Same, tmp_path: Path) -> None:
    source = """
        import atexit, threading, time
        from concurrent.futures import ThreadPoolExecutor
        atexit.register(print, "exit handler")
        def late():
            time.sleep(0.2)
            print("thread", threading.main_thread().is_alive(), __name__)
        threading.Thread(target=late).start()
        ThreadPoolExecutor().submit(print, "pool").result()
        print("end of script")
    """
    write(tmp_path, "s.py", source)
    assert same("s.py").stdout.splitlines()[-2:] == ["thread False __main__", "exit handler"]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_processes_run_the_script_as_python_starts_them(same: Same, tmp_path: Path, method: str) -> None:
    source = f"""
        import multiprocessing, sys
        class Job:
            def __init__(self, n): self.n = n
        def work(job):
            main = sys.modules["__main__"]
            loaded = {{"click", "torch", "yaml"}} & set(sys.modules) if {method!r} != "fork" else ()
            return job.n, __name__, main.__name__, getattr(main, "__file__", None), sys.argv, loaded, Job.__module__
        if __name__ == "__main__":
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                for line in pool.map(work, [Job(1), Job(2)]):
                    print(line)
    """
    write(tmp_path, "s.py", source)
    write(tmp_path, "pack/__init__.py", "")
    write(tmp_path, "pack/inner.py", source)
    assert same("s.py", "a").stdout.count("\n") == 2
    assert same("-m", "pack.inner", "a").stdout.count("\n") == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tracebacks of children show one line of ours there")
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_processes_end_as_python_ends_them(same: Same, tmp_path: Path, method: str) -> None:
    source = f"""
        import multiprocessing, os, subprocess, sys, traceback
        context = multiprocessing.get_context({method!r})
        class Own(context.Process):
            def run(self):
                raise ValueError("own")
        def work(how):
            if how == "raised": 1 / 0
            if how == "status": sys.exit(5)
            if how == "words": sys.exit("words")
            if how == "killed": os.kill(os.getpid(), 9)
            if how == "interrupt": raise KeyboardInterrupt
        if __name__ == "__main__":
            endings = "raised", "status", "words", "killed", "interrupt", "well"
            for process in *(context.Process(target=work, args=[how]) for how in endings), Own():
                process.start()
                process.join()
                print(process.exitcode, flush=True)
            try:
                context.Process(target=work, args=[open(__file__)]).start()
            except TypeError:
                traceback.print_exc()
            try:
                subprocess.run(["no-such-program"])
            except FileNotFoundError:
                traceback.print_exc()
    """
    write(tmp_path, "s.py", source)
    ended = same("s.py")
    assert ended.stdout == "1\n5\n1\n-9\n1\n0\n1\n"
    assert ended.stderr.count("Traceback") == (4 if method == "fork" else 5)


def test_forked_process_that_falls_off_the_end_ends_quietly(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "s.py", "import os\npid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])\nelse: 1 / 0\n")
    ended = same("s.py")
    assert ended.stdout == "256\n"
    assert ended.stderr.count("Traceback") == 1


def test_pickle_finds_a_class_of_the_script(same: Same, tmp_path: Path) -> None:
    write(tmp_path, "s.py", "import pickle\nclass A: pass\nprint(pickle.dumps(A()), type(pickle.loads(pickle.dumps(A()))) is A)")
    assert same("s.py").stdout.endswith("True\n")


@pytest.mark.parametrize("place", ["top", "library", "late", "gone"])
def test_error_with_a_status_of_its_own_ends_the_script_with_it(tmp_path: Path, place: str) -> None:
    """NonFiniteError and AbortAfter end a run this way: one line, where the user's code stood."""
    stop = "class Stop(Exception):\n    exit_status = 3\n    finding = None\n"
    sources = {
        "top": stop + "def step():\n    raise Stop('x')\nstep()",
        "library": stop + "import json\ndef hook(_):\n    raise Stop('x')\ndef step():\n    json.loads('{}', object_hook=hook)\nstep()",
        "late": stop.replace("    finding = None\n", "") + "raise Stop('enough')",
        "gone": f"import os\nos.remove('s.py')\n{stop}raise Stop('x')",
    }
    write(tmp_path, "s.py", sources[place])
    ended = end([COLD, "-m", "numscope", "run", "s.py"], tmp_path)
    assert ended.status == 3
    said, line = {
        "top": ("", "5 in step: raise Stop('x')"),
        "library": ("", "6 in hook: raise Stop('x')"),
        "late": ("enough: ", "3 in <module>: raise Stop('enough')"),
        "gone": ("", "6 in <module>"),
    }[place]
    assert ended.stderr == f"numscope: {said}stopped at {tmp_path / 's.py'}:{line}\n"


def test_console_script_runs_as_the_module_does(tmp_path: Path) -> None:
    write(tmp_path, "s.py", IDENTITY)
    write(tmp_path, "mod.py", IDENTITY)
    door = "import sys; sys.argv[0] = 'numscope'; from numscope.cli.command import main; main()"
    for words in (["s.py", "a"], ["-m", "mod", "a"]):
        bare = end([COLD, *words], tmp_path)
        assert end([COLD, "-c", door, "run", *words], tmp_path) == bare
