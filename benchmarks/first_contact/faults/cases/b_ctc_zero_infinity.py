"""Benign: CTC with zero_infinity=True and a transcript that is too long: the infinite loss is set to 0, as asked.
Source: wenet-e2e/wenet#2299, open-mmlab/mmocr#159, torch.nn.CTCLoss's documentation."""
import torch
from torch import nn

torch.manual_seed(0)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn, self.out = nn.Conv1d(8, 12, 3, 2, 1), nn.GRU(12, 12, batch_first=True, bidirectional=True), nn.Linear(24, 10)

    def forward(self, x):
        h = torch.relu(self.conv(x)).transpose(1, 2)
        return self.out(self.rnn(h)[0]).log_softmax(-1)


net = Recogniser()
ctc = nn.CTCLoss(zero_infinity=True)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(3, 8, 24)
    lengths = torch.tensor([4, 5, 20 if step % 2 else 3])
    labels = torch.randint(1, 10, (3, 20))
    logp = net(x).transpose(0, 1)
    loss = ctc(logp, labels, torch.full((3,), logp.shape[0]), lengths)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite() and all(p.isfinite().all() for p in net.parameters())
