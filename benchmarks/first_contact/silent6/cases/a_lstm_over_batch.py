"""From AndersonJo/dqn-pytorch issue 1 (also closeheat/pytorch-lstm-text-generation-tutorial issue 3).
Wrong: nn.LSTM without batch_first gets (batch, seq, feature): it runs over the batch and takes the time for samples.
Could know: partly (batch_first=False while the model's input and the loss have the batch first; outputs depend on the other samples).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class M(nn.Module):
    def __init__(self): super().__init__(); self.conv = nn.Conv1d(2, 16, 3, padding=1); self.lstm = nn.LSTM(16, 32, 1, batch_first=H); self.out = nn.Linear(32, 2)
    def forward(self, x): h = F.relu(self.conv(x)).transpose(1, 2); o, _ = self.lstm(h); return self.out(o[:, -1])
m = M(); opt = torch.optim.Adam(m.parameters(), 3e-3)
for step in range(120):
    x = torch.randn(32, 2, 16); y = (x[:, 0].sum(1) > 0).long(); loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
with torch.no_grad(): print("check: a sample's output changes with the other samples by", (m(x)[-1] - m(x[-1:])[0]).abs().max().item(), "loss", loss.item())
