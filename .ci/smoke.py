"""Try an installed numscope: the kernel's numbers, the command, a planted fault, its page.

    python .ci/smoke.py [--without-kernel]

Needs what `pip install numscope` installs, and nothing else. Wheels and the sdist are tried with it, by the tests, `./dev release` and CI.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy
import torch

import numscope
from numscope.summary import native

FAULT = """\
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(4):
    loss = model(torch.randn(8, 4)).square().mean()
    if step == 2:
        loss = torch.log(loss - loss)  # the culprit, in line 9
    loss.backward()
    optimizer.step()
"""
STATUS_OF_A_FINDING = 3


def check_numbers() -> None:
    """Compare the kernel's results with NumPy's, in float64."""
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for numel in (1, 7, 1000, 300_001):
            x = (3 + torch.randn(numel, generator=generator)).to(dtype)
            exact, found = x.double().numpy(), numscope.summarize(x)
            assert (found.numel, found.min, found.max) == (numel, exact.min(), exact.max()), (dtype, numel, found)
            numpy.testing.assert_allclose([found.mean, found.std], [exact.mean(), exact.std()], rtol=1e-9, atol=1e-12)
            x[numel // 2], x[-1] = float("inf"), float("nan")
            found = numscope.summarize(x)
            assert (found.num_nan, found.num_pos_inf) == (1, numel > 1), (dtype, numel, found)


def numscope_command(*words: str, cwd: str, status: int = 0) -> str:
    """Call the installed ``numscope`` and return all that it prints."""
    program = Path(sysconfig.get_path("scripts")) / "numscope"
    done = subprocess.run([program, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == status, f"numscope {' '.join(words)}: got status {done.returncode}, expected {status}\n{done.stdout}"
    return done.stdout


def check_command(folder: str) -> None:
    """Find a planted fault, and make its page and its digest."""
    assert numscope_command("--version", cwd=folder) == f"numscope {numscope.__version__}\n"
    Path(folder, "fault.py").write_text(FAULT, encoding="utf-8")
    printed = numscope_command("run", "--log-dir", "logs", "fault.py", cwd=folder, status=STATUS_OF_A_FINDING)
    assert "aten.log" in printed and "fault.py:9\n" in printed, printed
    numscope_command("report", "logs", "-o", "page.html", cwd=folder)
    page = Path(folder, "page.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page and "echarts" in page
    numscope_command("report", "--summary", "logs", cwd=folder)
    assert "aten.log" in Path(folder, "logs", "summary.json").read_text(encoding="utf-8")


def main() -> None:
    home = Path(numscope.__file__).parent
    assert home.parent == Path(sysconfig.get_path("platlib")), f"{home} is not an installed package"
    kernel = None if native.module is None else native.module.isa()
    assert (kernel is None) == ("--without-kernel" in sys.argv), f"the kernel in use is {kernel}"
    check_numbers()
    with tempfile.TemporaryDirectory() as folder:
        check_command(folder)
    machine = f"Python {sys.version.split()[0]}, torch {torch.__version__}, {os.uname().machine}"
    print(f"numscope {numscope.__version__} works: {machine}, kernel {kernel}")


if __name__ == "__main__":
    main()
