"""A file system that is full in mid-run and has room again: a real one, of 1 MiB, in a mount namespace of the test's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import logging, pathlib, sys
from numscope.page.frame import load
from numscope.sinks.parquet import ParquetSink
from tests.sinks.seen import observation, opened

folder = pathlib.Path(sys.argv[1])
said, filler = [], folder / "filler"
logging.getLogger("numscope").addFilter(lambda record: said.append(record.getMessage()))
sink = opened(loggers=[ParquetSink(folder / "run", 0, {}, flush_s=0.0)])
for step in range(30):
    if step == 10:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(512))
            except OSError:
                pass
    if step == 20:
        filler.unlink()
    sink.write([observation(step=step)])
    sink.flush()
sink.close()
steps = load(folder / "run").step.tolist()
assert steps == list(range(30)), steps
assert len(said) == 1 and "No space left" in said[0], said
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("unshare") is None, reason="mounts a small file system by Linux' unshare")
def test_what_a_full_file_system_could_not_take_is_written_when_it_has_room(tmp_path: Path) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if subprocess.run([*alone, *mount], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no mount namespaces; test_opening.py has the same with a disk that only says that it is full")
    command = f'"$@" && exec {sys.executable} - {tmp_path}'
    done = subprocess.run([*alone, "sh", "-c", command, "sh", *mount], input=RUN, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
