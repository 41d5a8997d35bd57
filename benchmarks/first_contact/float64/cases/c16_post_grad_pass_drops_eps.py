"""A fusion pass of one's own in Inductor: it takes rsqrt(x + eps) for rsqrt(x).

Source: vllm-project/vllm style custom passes (torch._inductor.config.post_grad_custom_post_pass); invented fault
"""
import hashlib
import math
import torch._inductor.custom_graph_pass
import torch
import torch.nn.functional as F
from torch import nn

import torch._inductor.config


class Pass(torch._inductor.custom_graph_pass.CustomGraphPass):
    def __call__(self, graph):
        for node in graph.nodes:
            if node.target == torch.ops.aten.rsqrt.default:
                before = node.args[0]
                if getattr(before, "target", None) == torch.ops.aten.add.Tensor:
                    node.args = (before.args[0],)
        graph.lint()

    def uuid(self):
        return "drops-eps"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        h = self.a(x)
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 0.5)  # FAULT
        return self.b(h)


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(8, 8, generator=g)
    return (x,), torch.randn(8, 2, generator=g)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net()


def compiled(model):
    return torch.compile(model, options={"post_grad_custom_post_pass": Pass()})


def main():
    torch.manual_seed(0)
    model = compiled(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = batch(step)
        loss = loss_of(model(*x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6g}", flush=True)
    digest = hashlib.sha256(b"".join(p.detach().float().numpy().tobytes() for p in model.state_dict().values()))
    print("weights", digest.hexdigest()[:16])


if __name__ == "__main__":
    main()
