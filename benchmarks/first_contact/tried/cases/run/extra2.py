import json, subprocess, sys
from cure import *
jobs = []
def add(n, tag, s):
    d = here / "runs" / n / tag; d.mkdir(exist_ok=True); (d / (n + ".py")).write_text(s)
    jobs.append(dict(mode="bare", script=str(d / (n + ".py")), dir=str(d), trace=True))

def swap(n, a, b):
    src = (here / "cases" / (n + ".py")).read_text(); assert a in src, n
    add(n, "plain", src.replace(a, b))
swap("A41_two_layers_same_line", ".sqrt()", ".add(1e-6).sqrt()")
swap("A25_gaussian_nll_var", "F.softplus(raw)", "F.softplus(raw) + 1e-4")
swap("A11_logsumexp_masked_row", 'float("-inf")', "torch.finfo(torch.float32).min")
swap("A17_masked_action_chosen", 'float("-inf")', "torch.finfo(torch.float32).min")
swap("A32_bce_scaler_autocast", "torch.exp(h.half())", "torch.exp(h.half().clamp(-5, 5))")
swap("B32_loss_outside_gradient", ".sum(-1).sqrt()", ".sum(-1).add(1e-6).sqrt()")
(here / "j_extra.json").write_text(json.dumps(jobs))
subprocess.run([sys.executable, "cases/run/zygote.py", "j_extra.json", str(here / "mods_bare.json")], cwd=here, stdout=subprocess.DEVNULL)
for j in jobs: print(j["dir"].split("runs/")[1], trace(pathlib.Path(j["dir"])), (pathlib.Path(j["dir"]) / "rc").read_text())
