import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class ASR(nn.Module):  # a target that does not fit its input
    def __init__(self):
        super().__init__(); self.rnn, self.out = nn.GRU(4, 8), nn.Linear(8, 5)
    def forward(self, x, target, lengths):
        logp = self.out(self.rnn(x)[0]).log_softmax(-1)
        return F.ctc_loss(logp, target, torch.full((2,), 6), lengths)
net = ASR(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    target = torch.randint(1, 5, (2, 4))
    if step == 2: target[1] = 2  # 2 2 2 2 takes seven frames, there are six
    else: target[:] = torch.tensor([1, 2, 3, 4])
    loss = net(torch.randn(6, 2, 4), target, torch.tensor([3, 4]))
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
