"""A remedy in the script's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from numscope.detect.written_remedy import in_own_words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return (x - mean) * torch.rsqrt(var + self.eps) * self.weight", "torch.rsqrt((var + self.eps).clamp_min(1e-6))"),
        ("y = rsqrt(self.moments[0])", "rsqrt(self.moments[0].clamp_min(1e-6))"),
        ("y = var.rsqrt()", "torch.rsqrt(var.clamp_min(1e-6))"),
        ("y = x.var(-1).add(1).rsqrt()", "torch.rsqrt(x.var(-1).add(1).clamp_min(1e-6))"),
        # the line does not say it
        ("y = self.normalize(x)", "rsqrt(x.clamp_min(1e-6))"),
        ("y = torch.rsqrt(a) + torch.rsqrt(b)", "rsqrt(x.clamp_min(1e-6))"),
        ("y = torch.rsqrt(", "rsqrt(x.clamp_min(1e-6))"),
        ("y = torch.rsqrt(*parts)", "rsqrt(x.clamp_min(1e-6))"),
        ("y = torch.rsqrt()", "rsqrt(x.clamp_min(1e-6))"),
        (f"y = torch.rsqrt({' + '.join('abcdefghijklmnopqrst')})", "rsqrt(x.clamp_min(1e-6))"),
        ("", "rsqrt(x.clamp_min(1e-6))"),
        ("y = \0", "rsqrt(x.clamp_min(1e-6))"),
    ],
)
def test_argument_is_the_lines_own(line: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"import torch\n    {line}\n")
    text = "rsqrt(x.clamp_min(1e-6))"
    assert in_own_words(text, "rsqrt", str(path), 2) == expected
    both = expected if expected != text else f"torch.{expected}"
    assert in_own_words(f"Use {text}, torch.{text}; sqrt(x)", "rsqrt", str(path), 2) == f"Use {expected}, {both}; sqrt(x)"
    assert in_own_words(text, "rsqrt", "<stdin>", 2) == text


DIVIDED, TWICE = "x / y.clamp_min(1e-6)", "x / torch.where(y.abs() < 1e-6, 1e-6, y)"


@pytest.mark.parametrize(
    ("line", "op", "text", "expected"),
    [
        ("y = a / b", "div", TWICE, "a / torch.where(b.abs() < 1e-6, 1e-6, b)"),
        ("y = (a + 1) / b.sum()", "div", DIVIDED, "(a + 1) / b.sum().clamp_min(1e-6)"),
        ("y = h / h.norm(dim=-1)", "div", TWICE, "d = h.norm(dim=-1); h / torch.where(d.abs() < 1e-6, 1e-6, d)"),
        (
            "y = a / (b - c)",
            "div",
            "Keep it from 0: x / y.clamp_min(1e-6). By the way.",
            "Keep it from 0: a / (b - c).clamp_min(1e-6). By the way.",
        ),
        ("y = (x - y) ** p", "pow", "x.clamp_min(1e-6) ** p", "(x - y).clamp_min(1e-6) ** p"),
        ("y = v ** -0.5", "pow", "x.clamp_min(1e-6) ** p", "v.clamp_min(1e-6) ** (-0.5)"),
        ("y = (a * y).sum(-1) / y.norm(dim=-1)", "div", DIVIDED, "(a * y).sum(-1) / y.norm(dim=-1).clamp_min(1e-6)"),
        ("y = (x / y).sum() / x", "pow", DIVIDED, DIVIDED),
        ("z = x.sum(y) / y", "div", TWICE, "x.sum(y) / torch.where(y.abs() < 1e-6, 1e-6, y)"),
        (
            "z = (a @ y) / (x + y)",
            "div",
            f"Use {TWICE}, or {DIVIDED}",
            "Use d = (x + y); (a @ y) / torch.where(d.abs() < 1e-6, 1e-6, d), or (a @ y) / (x + y).clamp_min(1e-6)",
        ),
        ("y = a.div(b)", "div", TWICE, "a / torch.where(b.abs() < 1e-6, 1e-6, b)"),
        ("y = torch.pow(v, 3)", "pow", "x.clamp_min(1e-6) ** p", "v.clamp_min(1e-6) ** 3"),
        # the line does not say it
        ("y = a / b / c", "div", TWICE, TWICE),
        ("y /= c", "div", TWICE, TWICE),
        ("y = v.pow(exponent=3)", "pow", "x.clamp_min(1e-6) ** p", "x.clamp_min(1e-6) ** p"),
    ],
)
def test_both_sides_of_a_sign_are_the_lines_own(line: str, op: str, text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"def forward(a, b):\n    {line}\n")
    assert in_own_words(text, op, str(path), 2) == expected


def test_a_call_over_several_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("y = (\n    torch.log(\n        p\n    )\n)\n")
    assert in_own_words("log(x.clamp_min(1e-6))", "log", str(path), 2) == "torch.log(p.clamp_min(1e-6))"
