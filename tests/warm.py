"""``WARM``: an interpreter for a test's commands that has torch from the start.

Nine tenths of what a small script costs are its imports. So one server, started when it is first needed and shared by all tests of a run,
imports what they use, this package included, and forks a child for each command. The child has the command's arguments, variables, folder
and open files, and runs it as ``__main__``. A module is in its ``sys.modules`` only once the command has imported it, which then takes no
time.

A command that asks for more, such as an option of the interpreter or a variable that torch reads while it loads, is run by ``COLD``, the
real interpreter. Tests about an interpreter's own start and end name ``COLD`` themselves.

``WARM`` starts a process that asks the server and then stands for the child: it passes on signals, ends as the child ends, and takes the
child with it when it is killed. Only the child's process number and session are others: tests that stop a process, or look for its group,
name ``COLD`` too.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a command's start pays for each import
    import socket
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any, NoReturn

# What the server imports, in this order; beside a name, what its import brings with it from further up.
_ROOTS = {
    **dict.fromkeys(("typing_extensions", "numpy", "yaml", "rich.console", "rich.table", "click", "pydantic"), ()),
    "torch": ("numpy",),
    "torch._dynamo": ("torch",),
    "torch._inductor.config": ("torch",),
    "torch.distributed.run": ("torch",),
    "pytest": (),
    "transformers.trainer": ("torch",),
    "pandas": ("numpy",),
    "torch._dynamo.testing": ("torch._dynamo",),
    "torch._inductor.compile_fx": ("torch._dynamo", "torch._inductor.config", "torch._dynamo.testing"),
    **dict.fromkeys(("duckdb", "pyarrow.parquet", "rich.markup", "s3fs"), ()),
}
_OURS = "numscope"  # loaded last, module by module
_WITH_FRAMEWORKS = ("numscope.integrations", "numscope.compat")  # but not these, which load much else
_FOLDER = "NUMSCOPE_TESTS_WARM"  # the variable that names the server's folder to the other processes of a run
COLD = os.environ.setdefault("NUMSCOPE_TESTS_COLD", sys.executable)
# Variables that are read while an interpreter or a library loads: where they differ from the server's, a real interpreter runs.
_READ_AT_START = ("LD_", "PYTHON", "TORCH", "PYTORCH", "TRITON", "MKL_", "KMP_", "OPENBLAS", "HF_", "TRANSFORMERS_")
_READ_LATER = (
    *("PYTHONPATH", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONSAFEPATH"),
    *("TORCHELASTIC_", "TORCH_NCCL_", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_NVML_BASED_CUDA_CHECK"),
)
# From multiprocessing, from torchrun; and what multiprocessing makes of PYTHONNOUSERSITE, which ./dev sets.
_AS_VARIABLES = {"-B": "PYTHONDONTWRITEBYTECODE", "-u": "PYTHONUNBUFFERED", "-s": "PYTHONNOUSERSITE"}
_FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT")
_HIGH = 512  # above all files that a command may hold


def differing(environ: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Variables with other values in the two, for which a command's interpreter has to start anew."""
    names = {name for name in {*environ, *other} if name.startswith(_READ_AT_START) and not name.startswith(_READ_LATER)}
    return [name for name in sorted(names) if environ.get(name, "") != other.get(name, "")]


def _forks() -> bool:
    """Not beside an NVIDIA GPU: torch refuses CUDA to the children of a process that has asked for it, as some imports do."""
    return sys.platform == "linux" and not os.path.exists("/dev/nvidiactl")


def prepare() -> str:
    """``WARM``'s path; where processes aren't forked, ``COLD``'s. The folder it is in goes with this process."""
    if not _forks():
        return COLD
    import atexit
    import marshal
    import py_compile
    import shlex
    import shutil
    import tempfile

    folder = os.environ.get(_FOLDER, "")
    warm = os.path.join(folder, "python")
    if not folder or not os.path.exists(warm):
        folder = os.environ[_FOLDER] = tempfile.mkdtemp(prefix="warm-")
        owner = os.getpid()
        atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
        program = os.path.join(folder, "warm.pyc")
        py_compile.compile(__file__, program, dfile="<frozen tests.warm>", doraise=True)  # frames of ours count as the interpreter's
        with open(os.path.join(folder, "environ"), "wb") as file:
            marshal.dump((owner, dict(os.environ)), file)
        warm = os.path.join(folder, "python")
        with open(warm, "w") as launcher:
            launcher.write(f'#!/bin/sh\nexec {shlex.quote(COLD)} -IS {shlex.quote(program)} ask {shlex.quote(folder)} "$@"\n')
        os.chmod(warm, 0o755)
    return warm


def load_all_at_first() -> None:
    """Has the server answer nobody before it has imported all: for those who come at once and import most of it."""
    if _forks():
        with open(os.path.join(os.environ[_FOLDER], "all"), "w"):
            pass


# --------------------------------------------------------------------------------------------------------------------------
# The process that asks. It imports only what is compiled into the interpreter.


def _ask(folder: str, words: list[str]) -> NoReturn:
    import _signal
    import _socket
    import marshal

    while words[:1] and words[0] in _AS_VARIABLES:
        os.environ[_AS_VARIABLES[words.pop(0)]] = "1"
    if not _is_plain(words):
        os.execv(COLD, [COLD, *words])
    fds = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_inherited(number)]
    umask = os.umask(0)
    os.umask(umask)
    request = marshal.dumps((_namespaces(), os.getpid(), os.getppid(), words, dict(os.environ), os.getcwd(), umask, fds))
    server = _connect(folder)
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in fds)
    server.sendmsg([len(request).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    server.sendall(request)
    child = int.from_bytes(server.recv(8), "big")
    if not child:
        os.execv(COLD, [COLD, *words])

    def forward(number: int, frame: object) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:  # it has just ended, and the answer is on its way
            pass

    for name in _FORWARDED:
        _signal.signal(getattr(_signal, name), forward)
    status = int.from_bytes(server.recv(8) or b"\xff\0", "big")  # without an answer the server has died: status 255
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _is_plain(words: list[str]) -> bool:
    if words[:1] in (["-c"], ["-m"]):
        return len(words) > 1
    return bool(words) and not words[0].startswith("-") and words[0].endswith(".py") and os.path.isfile(words[0])


def _namespaces(process: int | str = "self") -> dict[str, str]:
    return {name: os.readlink(f"/proc/{process}/ns/{name}") for name in ("pid", "net", "uts", "mnt")}


def _enter(namespaces: list[int]) -> None:
    """Has this process, which has one thread, live in the namespaces of another one."""
    import ctypes

    for namespace in namespaces:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)


def _is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:  # the folder that the numbers were read from
        return False


def _connect(folder: str) -> socket.socket:
    import _socket
    import fcntl

    def reached() -> Any:
        server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            server.connect(os.path.join(folder, "socket"))
        except (FileNotFoundError, ConnectionRefusedError):
            server.close()
            return None
        return server

    server = reached()
    if server is None:
        lock = os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = reached()
        if server is None:
            _start(folder)
            server = reached()
        os.close(lock)
    if server is None:
        with open(os.path.join(folder, "log")) as log:
            sys.exit(f"tests.warm: the server did not start: {log.read()}")
    return server


def _start(folder: str) -> None:
    import marshal

    with open(os.path.join(folder, "environ"), "rb") as file:
        owner, environ = marshal.load(file)
    done, doing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.set_inheritable(doing, True)
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(os.path.join(folder, "log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for number, source in enumerate((null, null, log)):
            os.dup2(source, number)
        os.closerange(3, doing)
        os.closerange(doing + 1, _HIGH)
        ours, wanted = _namespaces(), _namespaces(owner)  # who asks may be in one that does not last
        _enter([os.open(f"/proc/{owner}/ns/{name}", os.O_RDONLY) for name in ours if ours[name] != wanted[name]])
        path = environ.pop("PYTHONPATH", "")
        environ["PYTHONHASHSEED"] = "0"  # all children have the server's: what a search asks for its trials
        os.execve(COLD, [COLD, os.path.join(folder, "warm.pyc"), "serve", folder, str(owner), str(doing), path], environ)
    os.close(doing)
    os.read(done, 1)  # its end says that the server listens, or has died
    os.close(done)


# --------------------------------------------------------------------------------------------------------------------------
# The server.


class _Server:
    def __init__(self, folder: str, owner: int, path: str) -> None:
        import socket

        self.folder = folder
        self.owner = owner
        self.environ = {**os.environ, "PYTHONPATH": path}
        sys.executable = os.path.join(folder, "python")  # before multiprocessing makes a note of it
        del sys.path[0]
        self.path = list(sys.path)
        sys.path[:0] = _entries(path)
        self.modules = _Modules()
        until = self.modules.waiting[-1] if os.path.exists(os.path.join(folder, "all")) else "torch"
        while self.modules.waiting and until not in self.modules.root_of:
            self.modules.load_next()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(folder, "socket"))
        self.listener.listen(64)

    def serve(self) -> tuple[Any, ...] | None:
        """Returns in each child, with what it is to run; in the server, with nothing, when the run is over."""
        import contextlib
        import select
        import shutil
        import signal

        woken, wakes = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        children: dict[int, socket.socket] = {}
        while self._is_wanted():
            ready, _, _ = select.select([self.listener, woken, *children.values()], [], [], 0 if self.modules.waiting else 0.5)
            if not ready and self.modules.waiting:
                self.modules.load_next()
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            for child, client in list(children.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    del children[child]
                    with client, contextlib.suppress(OSError):
                        client.sendall(status.to_bytes(8, "big"))
                elif client in ready:  # it sends nothing: it has ended
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                        os.killpg(child, signal.SIGKILL)
            if self.listener in ready:
                client, _ = self.listener.accept()
                asked = self._asked(client)
                if asked is None:
                    client.close()
                    continue
                child = os.fork()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for each in (self.listener, client, *children.values()):
                        each.close()
                    os.close(woken)
                    os.close(wakes)
                    return asked
                for each in (*asked[0], *asked[-1]):
                    os.close(each)
                with contextlib.suppress(OSError):
                    client.sendall(child.to_bytes(8, "big"))
                children[child] = client
        shutil.rmtree(self.folder, ignore_errors=True)  # whom it belonged to may have been killed
        return None

    def _is_wanted(self) -> bool:
        try:
            os.kill(self.owner, 0)
        except ProcessLookupError:
            return False
        return os.path.exists(self.folder)

    def _asked(self, client: socket.socket) -> tuple[Any, ...] | None:
        """Namespaces to enter, parent, words, variables, folder, mask, numbers of files, files; None: a real interpreter must run them."""
        import contextlib
        import marshal
        import socket

        fds: list[int] = []
        entered: list[int] = []
        with contextlib.suppress(OSError):  # whoever asks may be killed at any moment
            head, fds, _, _ = socket.recv_fds(client, 8, 250)
            body = client.makefile("rb").read(int.from_bytes(head, "big"))
            if head and len(body) == int.from_bytes(head, "big"):
                namespaces, asker, *asked = marshal.loads(body)
                others = [name for name, which in _namespaces().items() if namespaces[name] != which]
                refused = differing(asked[2], self.environ)
                if not refused and (not others or ("pid" not in others and os.geteuid() == 0)):
                    for name in others:
                        entered.append(os.open(f"/proc/{asker}/ns/{name}", os.O_RDONLY))
                    return (entered, *asked, fds)
                print(f"not with {refused or others}: {asked[1]}", file=sys.stderr, flush=True)
                client.sendall(bytes(8))
        for fd in (*entered, *fds):
            os.close(fd)
        return None


def _hash_compilers() -> None:
    """What inductor's keys begin with: 2 s over all of torch and triton, in each process that compiles and has not inherited it."""
    from torch._inductor.codecache import torch_key, triton_key

    torch_key()
    triton_key()


def _entries(path: str) -> list[str]:
    return [os.path.abspath(entry) for entry in path.split(os.pathsep)] if path else []


class _Modules:
    """Imports modules and hides them again; as a finder, gives each back to who imports it."""

    def __init__(self) -> None:
        self.waiting = [*_ROOTS, _OURS]
        self.hidden: dict[str, ModuleType] = {}
        self.root_of: dict[str, str] = {}
        self.come_with: dict[tuple[str, str], list[str]] = {}  # by root and package: a command that imports one of them gets them all
        self.ours: dict[str, ModuleType] = {}
        self.needs: dict[str, list[str]] = {}  # what each of ours imports while it loads, in this order
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def load_next(self) -> None:
        import gc
        import importlib
        import traceback
        import weakref

        root = self.waiting.pop(0)
        visible = set(sys.modules)
        try:
            if root == _OURS:
                self._load_ours()
            else:
                importlib.import_module(root)
                if root == "torch._inductor.compile_fx":
                    _hash_compilers()
        except Exception:
            traceback.print_exc()  # into the log; whoever imports it sees the same
        for name in sorted(set(sys.modules) - visible):
            if name.partition(".")[0] not in sys.stdlib_module_names:
                self.hidden[name] = sys.modules.pop(name)
                if name not in self.root_of:
                    self.root_of[name] = name if name in self.ours else root
                    self.come_with.setdefault((self.root_of[name], name.partition(".")[0]), []).append(name)
        for name in self.hidden:
            parent, _, tail = name.rpartition(".")
            if parent in self.hidden and self.root_of[parent] != self.root_of[name]:
                if self.hidden[parent].__dict__.get(tail) is self.hidden[name]:  # a package may call something else by its name
                    del self.hidden[parent].__dict__[tail]
        for finalizer in list(weakref.finalize._registry):  # 50 ms at the end of each child, which torch's libraries outlive
            if getattr(finalizer.peek()[1], "__name__", "") == "_del_library":
                finalizer.atexit = False
        gc.collect()
        gc.freeze()  # else a child's collector would copy every page of it
        if not self.waiting:
            use_large_pages()

    def _load_ours(self) -> None:
        """Import each module of this package, and note what it imports in its turn."""
        import builtins
        import importlib.util
        import traceback

        original = builtins.__import__

        def noting(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
            module = original(name, globals, locals, fromlist, level)
            importer = (globals or {}).get("__name__", "")
            if importer.partition(".")[0] == _OURS:
                whole = importlib.util.resolve_name("." * level + name, globals["__package__"]) if level else name
                needs = self.needs.setdefault(importer, [])
                for need in (whole, *(f"{whole}.{each}" for each in fromlist or ())):
                    if need in sys.modules and need not in needs and need.partition(".")[0] not in sys.stdlib_module_names:
                        needs.append(need)
            return module

        builtins.__import__ = noting
        try:
            folder = os.path.dirname(importlib.import_module(_OURS).__file__ or "")
            for place, _, files in sorted(os.walk(folder)):
                package = ".".join((_OURS, *os.path.relpath(place, folder).split(os.sep))).removesuffix("..")
                for file in sorted(files):
                    module, _, suffix = file.partition(".")
                    name = package if module == "__init__" else f"{package}.{module}"
                    if suffix == "py" and module != "__main__" and not name.startswith(_WITH_FRAMEWORKS):
                        try:
                            importlib.import_module(name)
                        except Exception:
                            traceback.print_exc()
        finally:
            builtins.__import__ = original
        self.ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == _OURS}

    def _are_needs_met(self, name: str) -> bool:
        """Imports what one of our modules needs; whether that is what it got in the server: a test may have put something in its place."""
        import importlib

        for need in self.needs.get(name, ()):
            if not need.startswith(f"{name}."):
                try:
                    module = importlib.import_module(need)
                except ImportError:
                    return False
                if module is not self.ours.get(need, module):
                    return False
        return True

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        module = self.hidden.get(name)
        if module is None or (name in self.ours and not self._are_needs_met(name)):
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]  # type: ignore[arg-type]
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None and module.__spec__ is not None and spec.origin == module.__spec__.origin:
            spec.loader = _Loader(self, module)  # type: ignore[assignment]
            return spec
        return None  # the command's path has another module of that name

    def restore(self, name: str) -> None:
        import importlib

        root = self.root_of[name]
        for need in _ROOTS.get(root, ()):
            importlib.import_module(need)
        for each in [each for each in self.come_with[root, name.partition(".")[0]] if each in self.hidden]:
            module = sys.modules.setdefault(each, self.hidden.pop(each))
            parent, _, tail = each.rpartition(".")
            if parent in sys.modules and self.root_of.get(parent) != root:
                setattr(sys.modules[parent], tail, module)
        if name in self.ours:
            names = dict(vars(self.ours[name]))
            for need in self.needs.get(name, ()):  # parts of a package that it imports itself
                importlib.import_module(need)
            vars(self.ours[name]).update(names)
        if name == "torch":
            threads = os.environ.get("OMP_NUM_THREADS", "")
            sys.modules["torch"].set_num_threads(int(threads) if threads.isdigit() else len(os.sched_getaffinity(0)))


def use_large_pages() -> None:
    """Has the kernel put this process's memory into pages of 2 MB: to fork it takes a fifth of the time then."""
    import ctypes

    advise, size = ctypes.CDLL(None).madvise, 2 << 20
    with open("/proc/self/maps") as maps:
        areas = [line.split() for line in maps]
    for area, access, _, _, file, *_ in areas:
        if file == "0" and access.startswith("rw"):
            start, end = (int(address, 16) for address in area.split("-"))
            start = -(-start // size) * size
            if end - start >= size:
                advise(ctypes.c_void_p(start), ctypes.c_size_t((end - start) // size * size), 25)  # MADV_COLLAPSE; an older kernel refuses


class _Loader:
    def __init__(self, modules: _Modules, module: ModuleType) -> None:
        self.modules = modules
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec
        self.modules.restore(module.__name__)

    def __getattr__(self, name: str) -> Any:  # what -m asks for
        return getattr(self.spec and self.spec.loader, name)


# --------------------------------------------------------------------------------------------------------------------------
# The child.


def _become(
    server: _Server,
    namespaces: list[int],
    parent: int,
    words: list[str],
    environ: dict[str, str],
    folder: str,
    umask: int,
    numbers: list[int],
    fds: list[int],
) -> None:
    """Makes this process the one that was asked for, and runs its command."""
    import fcntl
    import importlib

    os.setsid()
    own, real = os.getpid(), os.getppid
    os.getppid = lambda: parent if os.getpid() == own else real()
    _enter(namespaces)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environ)
    _open_streams(environ)
    sys.dont_write_bytecode = bool(environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv = [sys.executable, *words]
    entries = _entries(environ.get("PYTHONPATH", ""))
    sys.path[:] = [*entries, *server.path]
    importlib.invalidate_caches()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # its folder is the variables'
    status = 0
    try:
        if any(os.path.exists(os.path.join(entry, "sitecustomize.py")) for entry in entries):
            sys.modules.pop("sitecustomize", None)
            importlib.import_module("sitecustomize")
        _run(words, not environ.get("PYTHONSAFEPATH"))
    except SystemExit as stop:
        status = _status(stop.code)
    except BaseException as error:
        status = _print(error)
    _end(status)


def _open_streams(environ: dict[str, str]) -> None:
    """Makes ``sys.stdin``, ``stdout`` and ``stderr`` anew: the server's remember what kind of files they had."""
    import io

    encoding, _, errors = environ.get("PYTHONIOENCODING", "").partition(":")
    unbuffered = bool(environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        raw = io.FileIO(number, "w" if number else "r", closefd=False)
        raw.name = old.name
        buffer: Any = io.BufferedReader(raw) if number == 0 else raw if unbuffered else io.BufferedWriter(raw)
        lenient = old.errors if name == "stderr" else errors or old.errors
        by_line = name == "stderr" or raw.isatty()
        new = io.TextIOWrapper(buffer, encoding or old.encoding, lenient, line_buffering=by_line, write_through=unbuffered)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _run(words: list[str], own_folder_first: bool) -> None:
    import builtins
    import runpy
    import types
    from importlib.machinery import SourceFileLoader

    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    path = os.path.join(os.getcwd(), words[0])
    if own_folder_first:
        sys.path.insert(0, {"-m": os.getcwd(), "-c": ""}.get(words[0], os.path.dirname(os.path.realpath(path))))
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # as the interpreter does
    elif words[0] == "-c":
        main.__loader__ = sys.__loader__
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec", dont_inherit=True), main.__dict__)
    else:
        sys.argv = list(words)
        main.__file__ = path
        main.__loader__ = SourceFileLoader("__main__", path)
        main.__dict__["__cached__"] = None
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def _print(error: BaseException) -> int:
    """Prints what ended the command as the interpreter does, without our frames; the status."""
    import signal

    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _print.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _end(status: int) -> NoReturn:
    """Ends as the interpreter does, but for the destructors of torch's libraries, which take longer than all before."""
    import atexit
    import contextlib
    import ctypes
    import gc
    import signal
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for step in (sys.stdout.flush, sys.modules["__main__"].__dict__.clear, gc.collect, sys.stdout.flush, sys.stderr.flush):
        with contextlib.suppress(ValueError):  # closed, in a child of a fork server
            step()
    ctypes.CDLL(None).fflush(None)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        _ask(sys.argv[2], sys.argv[3:])
    started = _Server(sys.argv[2], int(sys.argv[3]), sys.argv[5])
    os.close(int(sys.argv[4]))
    asked = started.serve()
    if asked is not None:
        _become(started, *asked)
