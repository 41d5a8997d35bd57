import ctypes
import os

import numscope
import torch
from torch import nn

MAIN, STEP, BIT, AT, fired = os.getpid(), [0], [0], [0], []


class Struck(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        if STEP[0] == 2 and os.getpid() == MAIN and not fired:
            i = int(y.detach().abs().flatten().argsort()[AT[0]])
            cell = ctypes.c_uint32.from_address(y.data_ptr() + 4 * i)
            fired.append(y.detach().flatten()[i].item())
            cell.value ^= 1 << BIT[0]
        return y


for AT[0] in (0, 5, 64, 127):
    for BIT[0] in (3, 5, 8):
        torch.manual_seed(0)
        fired.clear()
        model = nn.Sequential(Struck(8, 16), nn.GELU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scope = numscope.watch(model, check="again:at=2", alerts={"mode": "note"})
        for STEP[0] in range(8):
            model(torch.randn(8, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        scope.close()
        print(f"element {fired[0]:.2e} bit {BIT[0]}:", [(a.rule, a.text[a.text.find("(one"):][:80] if "(one" in a.text else "no bit") for a in scope.alerts], flush=True)
