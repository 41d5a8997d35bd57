"""Phase 7: how fast this rank computes and copies memory, independently of the others; comparison reveals stragglers.

It needs no process group: if the child is gone, a fresh one runs it. The number of threads is that of the CPUs this process may use,
divided by the ranks of its host. Repetitions of the two measurements alternate, so that a disturbance affects both.

``min_s`` reflects the machine, ``median_s`` also its load: more than 1.5 × the median of the others in ``min_s`` is a straggler, in
``median_s`` alone a busy host. The phase fails only if nothing could be measured.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from numscope.doctor.child.session import ChildSession

_MEASURE_S = 1.0  # for both together
_LEAST, _MOST = 5, 50  # repetitions
_N, _N_GPU = 512, 4096
_COPY_BYTES, _COPY_BYTES_GPU = 32 << 20, 256 << 20  # larger than caches


def run(session: ChildSession, arguments: Mapping[str, Any]) -> None:
    """Runs the measurements, on the device of ``local_rank`` and with the threads that ``local_world_size`` ranks share."""
    report = session.report
    num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, num_cpus // arguments["local_world_size"])
    torch.set_num_threads(threads)
    on_gpu = torch.cuda.is_available() and arguments["local_rank"] < torch.cuda.device_count() and arguments["backend"] != "gloo"
    device = torch.device("cuda", arguments["local_rank"]) if on_gpu else torch.device("cpu")
    n, num_bytes = (_N_GPU, _COPY_BYTES_GPU) if on_gpu else (_N, _COPY_BYTES)
    report.set(device=str(device), threads=threads, load=_load())
    with report.step(f"allocate on {device}"):
        a, b = torch.rand(n, n, device=device), torch.rand(n, n, device=device)
        product = torch.empty_like(a)
        source = torch.ones(num_bytes // 4, device=device)
        target = torch.empty_like(source)
    timings: dict[str, list[float]] = {"gemm": [], "copy": []}
    work: dict[str, Callable[[], object]] = {
        "gemm": lambda: torch.mm(a, b, out=product),
        "copy": lambda: target.copy_(source),
    }
    with report.step(f"multiply {n} × {n} matrices and copy {num_bytes >> 20} MiB alternately"):
        for function in work.values():
            _time(function, device)  # the first call pays for pages, threads and kernels
        end = time.monotonic() + min(_MEASURE_S, 0.5 * session.left)
        while len(timings["copy"]) < _LEAST or (time.monotonic() < end and len(timings["copy"]) < _MOST):
            for name, function in work.items():
                timings[name].append(_time(function, device))
            if session.left < 0.1 * session.limit_s:
                break
    gemm, copy = _summary(timings["gemm"]), _summary(timings["copy"])
    report.set(gemm={"n": n, **gemm, "flops_per_s": 2 * n**3 / gemm["min_s"]})
    report.set(copy={"bytes": num_bytes, **copy, "bytes_per_s": num_bytes / copy["min_s"]})


def _time(function: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return max(time.perf_counter() - began, 1e-9)


def _summary(timings: list[float]) -> dict[str, Any]:
    return {"repeats": len(timings), "min_s": min(timings), "median_s": statistics.median(timings), "max_s": max(timings)}


def _load() -> float:
    try:
        return os.getloadavg()[0]
    except OSError:
        return -1.0
