"""CTC loss on raw logits: ctc_loss wants log-probabilities.
Source: https://github.com/gwx314/STARS/issues/9
Truth: what ctc_loss gets is not normalized (mean |logsumexp| above 0; healthy: 0), so the number is no likelihood.
Could a tool know: yes: ctc_loss gets a linear layer's output.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class PhonemeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(12, 24, 3, padding=1), nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.ph = nn.Linear(48, 9)

    def forward(self, mel):
        h = torch.relu(self.conv(mel.transpose(1, 2))).transpose(1, 2)
        return self.ph(self.rnn(h)[0])


model = PhonemeNet()
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
sound = torch.randn(9, 12)
for step in range(150):
    y = torch.randint(1, 9, (8, 5))
    mel = sound[y.repeat_interleave(4, 1)] + 0.3 * torch.randn(8, 20, 12)
    logits = model(mel)
    lp = nn.functional.log_softmax(logits, -1) if HEALTHY else logits
    loss = nn.functional.ctc_loss(lp.transpose(0, 1), y, torch.full((8,), 20), torch.full((8,), 5), blank=0, zero_infinity=True)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} mean |logsumexp| {lp.logsumexp(-1).abs().mean():.4f}")
