"""From yatengLG/Focal-Loss-Pytorch issues 5 and 9.
Wrong: self.alpha = self.alpha.gather(0, labels) overwrites the class weights with those of the first batch's samples, so all later batches
take weights from other samples' places.  Could know: partly (a tensor that is set in the loss module at its first call).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class focal_loss(nn.Module):
    def __init__(self, alpha, gamma=2):
        super().__init__(); self.alpha = alpha; self.gamma = gamma
    def forward(self, preds, labels):
        lp = F.log_softmax(preds, 1).gather(1, labels.view(-1, 1)); p = lp.exp()
        if H: alpha = self.alpha.gather(0, labels.view(-1))
        else: self.alpha = alpha = self.alpha.gather(0, labels.view(-1))
        return (alpha * (-(1 - p) ** self.gamma * lp).t()).mean()
C = 6; centers = torch.randn(C, 10) * 1.2; prior = torch.tensor([.5, .25, .1, .08, .05, .02])
def batch(n): y = torch.multinomial(prior, n, True); return centers[y] + torch.randn(n, 10), y
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, C)); crit = focal_loss(1 / prior / (1 / prior).sum() * C)
w0 = crit.alpha.clone(); opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(150):
    x, y = batch(64); loss = crit(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): x, y = batch(4000); r = (net(x).argmax(1) == y)[y == 5].float().mean().item()
print("check: weights in use are those given:", crit.alpha.shape == w0.shape and bool((crit.alpha == w0).all()), "recall of the rarest class", r)
