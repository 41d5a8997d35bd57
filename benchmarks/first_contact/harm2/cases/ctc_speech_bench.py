"""A small speech model with conv, GRU and CTC loss (some targets too long: zero_infinity), SpecAugment-like masks in place.

Source: invented
"""
# PRELUDE
class ASR(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(8, 12, 3, 2, 1); self.g = nn.GRU(12, 12, batch_first=True, bidirectional=True); self.o = nn.Linear(24, 6)
    def forward(self, x):
        if self.training:
            t0 = int(torch.randint(0, 10, ()))
            x[:, :, t0:t0 + 3] = 0
        return self.o(self.g(torch.relu(self.c(x)).transpose(1, 2))[0]).log_softmax(-1)
torch.manual_seed(0)
m = ASR(); W(m)
opt = torch.optim.Adadelta(m.parameters())
for s in range(4):
    x = torch.randn(3, 8, 20)
    lp = m(x)
    loss = F.ctc_loss(lp.transpose(0, 1), torch.randint(1, 6, (3, 9)), torch.tensor([10, 10, 5]), torch.tensor([4, 3, 9]), zero_infinity=True)
    opt.zero_grad(); loss.backward(); opt.step()
    print(float(loss.detach()).hex(), H(x))
print(M(m), R())
