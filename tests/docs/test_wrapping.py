"""Lines of prose are wrapped alike in all documents, and nothing but prose is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.wrapping import DOCUMENTS, ROOT, WIDTH, wrapped


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_is_wrapped_alike(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == wrapped(text), "./dev format"


def test_words_fill_their_lines_and_items_keep_their_indent() -> None:
    text = f"- {'word ' * 40}\n  and\nmore\n- next\n"
    assert wrapped(text) == f"- {'word ' * 26}word\n  {'word ' * 13}and more\n- next\n"


@pytest.mark.parametrize(
    "text",
    [
        f"| {'a ' * 100}|\n| b |\n",
        f"```sh\n{'a ' * 100}\n- b\n```\n",
        f"<!-- python\n{'a ' * 100}\n\nb\n-->\n",
        f"# {'a ' * 100}b\n",
        "::: numscope\n    options: { filters: [] }\n::: other\n",
        "- item\n\n## Words\n\n    a picture ──▶\n              of\n\n    lines\n",
    ],
)
def test_what_is_no_prose_stays(text: str) -> None:
    assert wrapped(text) == text


@pytest.mark.parametrize("mark", ["-", "1.", "#", "+", "|", ">"])
def test_no_line_begins_with_what_would_be_a_mark(mark: str) -> None:
    text = f"{'a' * (WIDTH - 1)} {mark} b\n"
    assert wrapped(text).splitlines()[0].endswith(f" {mark}")
    assert wrapped(wrapped(text)) == wrapped(text)


def test_code_is_not_torn_apart() -> None:
    assert wrapped(f"{'a' * (WIDTH - 5)} `b c d`\n") == f"{'a' * (WIDTH - 5)}\n`b c d`\n"
