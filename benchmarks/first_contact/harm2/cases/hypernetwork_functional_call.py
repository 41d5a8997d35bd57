"""A network whose weights another network makes, through functional_call with tied keys and strict.

Source: https://pytorch.org/docs/stable/generated/torch.func.stack_module_state.html
"""
# PRELUDE
from torch.func import functional_call
target = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
shapes = {k: v.shape for k, v in target.named_parameters()}
n = sum(v.numel() for v in shapes.values())
torch.manual_seed(0)
hyper = nn.Linear(3, n); W(hyper); W(target)
opt = torch.optim.Adam(hyper.parameters(), 1e-2)
for s in range(5):
    flat = hyper(torch.randn(3)) * 0.3
    w, i = {}, 0
    for k, sh in shapes.items():
        w[k] = flat[i:i + sh.numel()].view(sh); i += sh.numel()
    loss = functional_call(target, w, (torch.randn(6, 4),)).square().mean() + 1e-3 * flat.square().sum()
    opt.zero_grad(); loss.backward(); opt.step()
    print(float(loss.detach()).hex())
print(M(hyper), M(target), all(p.grad is None for p in target.parameters()), R())
