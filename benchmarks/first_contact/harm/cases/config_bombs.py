"""Configurations with tags that call, aliases that multiply, regexes that backtrack, a megabyte of text: refused quickly, nothing is run.

source: PyYAML's load advisories (public), "billion laughs"; own regexes
truth: docs/promises.md: no tags; 1 MiB, 32 levels, 100,000 values; regexes in linear time
meta: {"kind": "tool", "limit": 200}
"""
import os
from pathlib import Path
from fctool import children_peak_mib, done, make_run, sane, say, tool

laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)) + "all: {enabled: true, layers: {layer_types: *a11}}\n"
BAD = {
    "tag": "all: !!python/object/apply:os.system ['touch ran']\n",
    "tag2": "!!python/object/new:subprocess.Popen [['touch', 'ran']]\n",
    "laughs": laughs,
    "merge": "b: &b {k: 1}\n" + "".join(f"c{i}: &c{i} {{<<: [*{'b' if not i else f'c{i - 1}'}, *{'b' if not i else f'c{i - 1}'}], k{i}: 1}}\n" for i in range(40)),
    "deep": "all: " + "[" * 20000 + "]" * 20000,
    "big": "all: {enabled: true}\n# " + "x" * (3 << 20),
    "self": "all: &a [*a]\n",
    "number": "all: {enabled: true, layers: {layer_types: [Linear]}, statistics: {enabled: true, stats: [mean], tensors: [weight], freq: " + "9" * 5000 + "}}\n",
    "binary": "\x00\x01\x02",
    "control": "all: {\x1b[31menabled: true}\n",
}
for name, text in BAD.items():
    Path(f"{name}.yaml").write_text(text)
    sane(tool("config", "check", f"{name}.yaml", timeout=30), name, statuses=(0, 1, 2), limit=20)
REGEX = "all: {enabled: true, layers: {layer_name_regex_pattern: '%s'}, statistics: {enabled: true, stats: [mean], tensors: [weight], freq: 1}}\n"
Path("m.py").write_text("import torch\nfrom torch import nn\nn = nn.ModuleDict({'a' * 40 + 'b': nn.Linear(4, 1)})\no = torch.optim.SGD(n.parameters(), .1)\nfor i in range(2):\n    l = list(n.values())[0](torch.ones(1, 4)).sum(); o.zero_grad(); l.backward(); o.step()\nprint('trained')\n")
for i, r in enumerate(("(a+)+$", "(a|aa)+$", "(.*a){20}", "(?:a?){40}a{40}", "([a-z]*)*!", "(a*)*\\1$")):
    Path("r.yaml").write_text(REGEX % r)
    status, out, err, seconds = tool("run", "--config", "r.yaml", "--log-dir", f"log{i}", "m.py", timeout=60)
    say(status is not None and seconds < 30, f"regex {r} is matched in time or refused", seconds, status)
say(not Path("ran").exists(), "no tag was carried out")
say(children_peak_mib() < 1200, "no command took more than 1.2 GiB", children_peak_mib())
done()
