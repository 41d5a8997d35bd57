"""The truth of a fault, without numscope: python truth.py cases/w01….py …

Each case is run bare on the batch of the checked step (the second), as it is and in float64 (its LOW set to float64, its FIXED to
True, the model by .double()). Printed: the relative difference of the output, of all parameters' gradients together, and of the
worst parameter's. For compiled cases (c…): compiled beside eager, and eager beside float64.
"""
import copy
import importlib.util
import sys

import torch


def load(path):
    spec = importlib.util.spec_from_file_location("case", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def doubled(x):
    return x.double() if torch.is_tensor(x) and x.is_floating_point() else x


def run(case, model, x, y):
    torch.manual_seed(7)
    out = model(*x)
    model.zero_grad()
    case.loss_of(out, y).backward()
    flat = out if torch.is_tensor(out) else torch.cat([o.flatten() for o in out])
    return flat.detach().double(), {n: p.grad.detach().double() for n, p in model.named_parameters() if p.grad is not None}


def off(a, b):
    return float((a - b).norm() / (b.norm() + 1e-300))


def beside(one, two):
    (o, g), (p, h) = one, two
    names = [n for n in h if n in g]
    every = lambda s: torch.cat([s[n].flatten() for n in names]) if names else torch.zeros(1)
    worst = max(((off(g[n], h[n]), n) for n in names), default=(0, ""))
    return dict(output=off(o, p), gradient=off(every(g), every(h)), worst=worst)


for path in sys.argv[1:]:
    case = load(path)
    torch.manual_seed(0)
    model = case.build()
    x, y = case.batch(1)
    bare = copy.deepcopy(model)
    name = path.split("/")[-1][:-3]
    if name.startswith("w07"):  # the first step fills the cache
        case_model = bare
        run(case, case_model, *case.batch(0))
        with torch.no_grad():
            for p in case_model.parameters():
                p -= 2.0 * p.grad
        model = copy.deepcopy(case_model)
        a = run(case, case_model, x, y)
    elif name.startswith("c"):
        a = run(case, case.compiled(bare), x, y)
        eager = run(case, copy.deepcopy(model), x, y)
    else:
        a = run(case, bare, x, y)
    if hasattr(case, "LOW"):
        case.LOW = torch.float64
    case.FIXED = True
    double = copy.deepcopy(model).double()
    b = run(case, double, tuple(map(doubled, x)), doubled(y))
    if name.startswith("c"):
        a = a[0], {n.replace("_orig_mod.", ""): g for n, g in a[1].items()}
        print(name, "compiled beside float64", beside(a, b), "eager beside float64", beside(eager, b), flush=True)
    else:
        print(name, beside(a, b), flush=True)
