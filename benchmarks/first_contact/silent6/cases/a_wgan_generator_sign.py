"""From Zeleni9/pytorch-wgan pull 53.
Wrong: g_loss.backward(one) where mone is meant: the generator is trained to lower the critic's score of its fakes.
Could know: no (a sign; a tool could at best see that the critic's gap only grows).
"""
import sys, torch, torch.nn as nn
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)); D = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
og, od = torch.optim.RMSprop(G.parameters(), 5e-4), torch.optim.RMSprop(D.parameters(), 5e-4); one = torch.tensor(1.); mone = -one
for it in range(100):
    for p in D.parameters(): p.requires_grad = True
    for _ in range(3):
        for p in D.parameters(): p.data.clamp_(-.1, .1)
        D.zero_grad(); dr = D(torch.randn(64, 2) * .3 + 2).mean(); dr.backward(mone); df = D(G(torch.randn(64, 4)).detach()).mean(); df.backward(one); od.step()
    for p in D.parameters(): p.requires_grad = False
    G.zero_grad(); gl = D(G(torch.randn(64, 4))).mean(); gl.backward(mone if H else one); og.step()
    if it % 20 == 0: print(it, round((dr - df).item(), 4), round(gl.item(), 4))
with torch.no_grad(): print("check: distance of the fakes' mean from the data's", (G(torch.randn(2000, 4)).mean(0) - 2).norm().item())
