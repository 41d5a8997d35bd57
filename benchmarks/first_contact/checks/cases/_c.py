import math, sys
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function

torch.set_num_threads(1)
torch.manual_seed(0)
BAD = "--healthy" not in sys.argv
TRUTH = "--truth" in sys.argv


def truth(fn, *inputs, **kw):
    """Prints gradcheck's verdict on fn (float64 unless kw says otherwise), and ends the script."""
    if not TRUTH:
        return
    inputs = [i.detach().double().requires_grad_() if torch.is_tensor(i) and i.is_floating_point() else i for i in inputs]
    try:
        torch.autograd.gradcheck(fn, inputs, raise_exception=True, **kw)
        print("TRUTH: right")
    except Exception as e:
        print("TRUTH: WRONG:", str(e).splitlines()[0][:120])
    sys.exit()


def verdict(got, want, what=""):
    if not TRUTH:
        return
    e = float((got.double() - want.double()).norm() / want.double().norm())
    print("TRUTH:", "right" if e < 1e-4 else "WRONG:", f"relative error {e:.3g}", what)
    sys.exit()


def fit(model, loss_of, steps=6, lr=1e-2):
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        opt.zero_grad()
        loss = loss_of(step)
        loss.backward()
        opt.step()
        print(step, loss.item().hex())
