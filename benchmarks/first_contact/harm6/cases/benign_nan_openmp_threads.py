"""Two threads of OpenMP (torch.set_num_threads(2)), tensors large enough to be computed in parallel, a harmless nan in evaluation and in a forward of training; SIGALRM's default action ends a run that takes too long."""
import signal
# PRELUDE
torch.set_num_threads(2)
signal.alarm(25)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b, self.c = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 8)

    def forward(self, x, log=False):
        h = torch.tanh(self.a(x))
        h = torch.softmax(self.b(h), -1) + h
        with torch.no_grad():
            self.share = torch.nan_to_num(h.log()).mean()
        y = self.c(h)
        return y.log() if log else y


m = Wide()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for k in range(3):
    for s in range(3):
        x, y = batch(10 * k + s, 2048, 64, 8)
        opt.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        opt.step()
    with torch.no_grad():
        bad = m(batch(90 + k, 2048, 64, 8)[0], True)
    print(k, round(loss.item(), 4), bad.isnan().any().item(), torch.get_num_threads(), round(m.share.item(), 3), flush=True)
print(all(p.isfinite().all().item() for p in m.parameters()), R())
