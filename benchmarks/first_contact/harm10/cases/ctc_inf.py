#: what: CTC with targets longer than the input: inf losses logged unreduced, zero_infinity in training
#: benign: inf per-sample losses
#: source: https://runebook.dev/en/docs/pytorch/generated/torch.nn.functional.ctc_loss
# PRELUDE
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.conv = nn.Conv1d(8, 16, 3, stride=2, padding=1); self.rnn = nn.GRU(16, 16, bidirectional=True, batch_first=True); self.out = nn.Linear(32, 6)
    def forward(self, x):
        h, _ = self.rnn(self.conv(x).transpose(1, 2)); return self.out(h).log_softmax(-1).transpose(0, 1)
m = Net(); watch(m); opt = torch.optim.AdamW(m.parameters(), 3e-3); crit = nn.CTCLoss(zero_infinity=True)
bad = 0
for step in range(20):
    x = torch.randn(5, 8, 20); lp = m(x)
    tl = torch.randint(3, 14, (5,)); t = torch.randint(1, 6, (5, 14))
    il = torch.full((5,), lp.size(0))
    raw = F.ctc_loss(lp, t, il, tl, reduction="none")          # logged only
    bad += torch.isinf(raw).sum().item()
    loss = crit(lp, t, il, tl)
    opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step()
    print(step, loss.item(), sha(raw))
print("infinite", bad); show(m, opt)
