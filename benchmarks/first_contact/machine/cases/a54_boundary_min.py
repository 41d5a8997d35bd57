# opts: --check again:every=1
# truth: shortest for a32: bit 24 of the gradient that model B gives to its input, which is model A's output (two models in a row), step 3
# source: as a32 (encoder and head as two models)
import flips as C, torch
torch.manual_seed(0); A, B = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1); o = torch.optim.SGD([*A.parameters(), *B.parameters()], 0.1)
for C.STEP in range(7):
    h = A(torch.randn(4, 4)); h.register_hook(lambda g: (C.poke(g, 5, 24, at=3, what="B's input gradient (mm)"), None)[1])
    B(h).square().mean().backward(); o.step(); o.zero_grad()
C.finish(A, B)
