"""Runs a page's blocks, one after another, in the folder it is started in: ``play.py BLOCKS.json OUTPUTS.json``.

A python block sees the names of those before it. Its frames and its source belong to a file of the page's name, at the page's line. Each
block's output is taken at the files themselves, so that what other threads, C++ and child processes print is in it.
"""

from __future__ import annotations

import json
import linecache
import os
import subprocess
import sys
import tempfile
import traceback


def main(blocks_file: str, outputs_file: str) -> int:
    with open(blocks_file, encoding="utf-8") as file:
        page, blocks = json.load(file)
    sys.argv = [page]
    sys.path[0] = ""  # as in a session at a prompt
    names: dict[str, object] = {"__name__": "__main__"}
    outputs: list[str] = []
    status = 0
    for block in blocks:
        if status:
            break
        if block["kind"] == "file":
            os.makedirs(os.path.dirname(block["title"]) or ".", exist_ok=True)
            with open(block["title"], "w", encoding="utf-8") as file:
                file.write(block["code"] + "\n")
            outputs.append("")
            continue
        with tempfile.TemporaryFile() as taken:
            sys.stdout.flush()
            kept = os.dup(1), os.dup(2)
            os.dup2(taken.fileno(), 1)
            os.dup2(taken.fileno(), 2)
            try:
                if block["kind"] == "sh":
                    ended = subprocess.run(["bash", "-eo", "pipefail", "-c", block["code"]]).returncode
                    status = 0 if ended == block["status"] else ended or 1
                else:
                    status = python(page, block, names)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                for number, file_number in zip((1, 2), kept, strict=True):
                    os.dup2(file_number, number)
                    os.close(file_number)
            taken.seek(0)
            outputs.append(taken.read().decode(errors="replace"))
    with open(outputs_file, "w", encoding="utf-8") as file:
        json.dump(outputs, file)
    return status


def python(page: str, block: dict[str, object], names: dict[str, object]) -> int:
    name = f"{page}:{block['line']}"
    code = str(block["code"]) + "\n"
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    try:
        exec(compile(code, name, "exec"), names)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else bool(error.code)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
