"""From pliang279/MultiBench issue 26.
Wrong: some lines after model.eval() the validation calls model.train(): dropout is active and batch norms take in validation data.
Could know: yes, a model is called without gradients in train mode, again and again.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(.4), nn.Linear(64, 3)); opt = torch.optim.AdamW(model.parameters(), 3e-3); w = torch.randn(20, 3)
Xv = torch.randn(320, 20) + .5; Yv = (Xv @ w).argmax(1)
for epoch in range(6):
    model.train()
    for _ in range(25): x = torch.randn(64, 20); loss = F.cross_entropy(model(x), (x @ w).argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        model.eval(); total = 0.
        if not H: model.train()
        for i in range(0, 320, 32): total += F.cross_entropy(model(Xv[i:i + 32]), Yv[i:i + 32]).item() / 10
    print(epoch, round(loss.item(), 4), round(total, 4))
model.eval()
with torch.no_grad(): print("check: validation loss reported / in eval mode", total, F.cross_entropy(model(Xv), Yv).item())
