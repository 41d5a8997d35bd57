# opts: --check precision:at=1,2,3
# truth: shortest for p03: float16 autocast, loss times 1e-9: every gradient is exactly 0 (a bf16 or scaled run has them): the line says 0.00%
# source: as p03
import flips as C, torch
torch.manual_seed(0); m = torch.nn.Linear(8, 4); o = torch.optim.SGD(m.parameters(), 0.1)
for C.STEP in range(6):
    x = torch.randn(4, 8)
    with torch.autocast("cpu", torch.float16): l = m(x).float().square().mean() * 1e-9
    l.backward()
    if C.STEP == 1: g = m.weight.grad; h = torch.autograd.grad(torch.nn.functional.linear(x, m.weight, m.bias).square().mean() * 1e-9, m.weight)[0]; print("TRUTH norm of gradient", g.norm().item(), "of float32's", h.norm().item())
    o.step(); o.zero_grad()
C.finish(m)
