"""What the pages say to type is typed, and what they say it prints is what it prints.

By another interpreter, such as one that has the built wheel: ``NUMSCOPE_READER=/venv/bin/python ./dev test tests/docs``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Block, Page, missing, read

ROOT = Path(__file__).resolve().parents[2]
READER = os.environ.get("NUMSCOPE_READER", "")
PAGES = {
    path.relative_to(ROOT).as_posix(): page
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if (page := read(path)).blocks or page.not_run
}


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a reader's shell: ``python`` and ``numscope`` on its path are the ones under test."""
    tools = tmp_path / "bin"
    tools.mkdir()
    python = READER or sys.executable
    for name, words in (("python", '"$@"'), ("numscope", '-m numscope "$@"'), ("torchrun", '-m torch.distributed.run "$@"')):
        (tools / name).write_text(f'#!/bin/sh\nexec "{python}" {words}\n')
        (tools / name).chmod(0o755)
    path = os.pathsep.join([str(tools), os.path.dirname(READER or os.environ["NUMSCOPE_TESTS_COLD"]), os.environ["PATH"]])
    found = "" if READER else os.environ.get("PYTHONPATH", str(ROOT / "src"))
    return {**os.environ, "PATH": path, "COLUMNS": "140", "PYTHONPATH": found, "PYTHONUNBUFFERED": "1"}  # lines in a terminal's order


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.blocks])
def test_blocks_do_what_their_page_says(name: str, tmp_path: Path, shell: dict[str, str]) -> None:
    blocks = PAGES[name].blocks
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "blocks.json").write_text(json.dumps([name, [dataclasses.asdict(block) for block in blocks]]))
    player = subprocess.run(
        [READER or sys.executable, str(ROOT / "tests/docs/play.py"), str(tmp_path / "blocks.json"), str(tmp_path / "outputs.json")],
        cwd=folder,
        env=shell,
        capture_output=True,
        text=True,
        timeout=280,
    )
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    ended = blocks[len(outputs) - 1]
    assert player.returncode == 0, f"{name}:{ended.line}: exit status {player.returncode}\n{outputs[-1]}\n{player.stderr}"
    for block, printed in zip(blocks, outputs, strict=True):
        line = missing(block.prints, printed)
        assert line is None, f"{name}:{block.line}: it does not print {line!r}, but\n{printed}"


def page_of(tmp_path: Path, text: str) -> Page:
    path = tmp_path / "page.md"
    path.write_text(text)
    return read(path)


def test_page_is_read(tmp_path: Path) -> None:
    text = """
<!-- python
a = 1
-->
<!-- yaml title="x.yaml"
b: 2
-->

```python
print(a)
```

```text
1
```

```python title="train.py"
...
```

<!-- not run: it takes a cluster -->

```sh
srun x
```

1. indented

    <!-- exit status 1 -->

    ```sh
    false
    ```
"""
    page = page_of(tmp_path, text)
    assert page.not_run == [(23, "it takes a cluster")]
    assert page.blocks == [
        Block("python", "a = 1", 3),
        Block("file", "b: 2", 6, "x.yaml"),
        Block("python", "print(a)", 10, prints="1"),
        Block("file", "...", 18, "train.py"),
        Block("sh", "false", 32, status=1),
    ]


def test_text_apart_from_a_block_is_not_what_it_prints(tmp_path: Path) -> None:
    assert page_of(tmp_path, "```sh\ntrue\n```\nThis is something else:\n```text\nx\n```\n").blocks[0].prints == ""


def test_block_that_never_ends_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"page.md:1: '```sh' is never closed"):
        page_of(tmp_path, "```sh\ntrue\n")


@pytest.mark.parametrize(
    ("expected", "printed", "line"),
    [
        ("a\nb", "x\na\ny\nb\n", None),
        ("b\na", "a\nb\n", "a"),
        ("step … loss", "step  70   loss 3.3", None),
        ("step … loss", "loss at step 70", "step … loss"),
        ("…\n...\n", "", None),
        ("one line", "one\n  line", None),
        ("a.c", "abc", "a.c"),
        ("loss 3.25 at 1.0e-03", "loss 3.5 at 2.25e-3", None),
        ("step 12, loss 3.25", "step 13, loss 3.25", "step 12, loss 3.25"),
    ],
)
def test_printed_lines_are_found_in_order(expected: str, printed: str, line: str | None) -> None:
    assert missing(expected, printed) == line
