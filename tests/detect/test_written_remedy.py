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
