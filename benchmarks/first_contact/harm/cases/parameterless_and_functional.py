"""Training without any module: raw leaves, functional ops, an optimizer over tensors; a module without parameters; NumPy round trips.

source: pytorch/pytorch#3835 (raw loops), pytorch.org "nn tutorial" by hand
"""
import numpy as np
import torch
from torch import nn
from fcw import rng, say, seed, sha, watch

seed(316)
w = torch.randn(5, 3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
bare = nn.Sequential(nn.Tanh(), nn.Softmax(-1))
watch(bare)
opt = torch.optim.Adam([w, b], 1e-1)
for step in range(6):
    x = torch.from_numpy(np.random.rand(4, 5).astype("f"))
    p = bare(x @ w + b)
    loss = -(p + 1e-6).log()[range(4), torch.randint(0, 3, (4,))].mean()
    opt.zero_grad()
    loss.backward()
    g = w.grad.numpy()
    g *= 0.5
    opt.step()
    with torch.no_grad():
        w.numpy()[0] *= 0.99
        b -= b.mean()
    shared = torch.from_numpy(g)
    say(loss.item().hex(), sha(w, b, w.grad, shared), shared.data_ptr() == w.grad.data_ptr())
say(np.asarray(w.detach()).dtype, w.detach().__array__().shape, sha(opt.state_dict()), rng())
