#: what: set_detect_anomaly(True): the RuntimeError of a nan backward is caught, the batch is skipped, the partial gradients cleared
#: benign: nan in a backward that anomaly mode refuses
#: source: https://github.com/pytorch/ignite/pull/219
# PRELUDE
import warnings; warnings.filterwarnings("ignore", message=".*[Aa]nomaly.*"); warnings.filterwarnings("ignore", message="Error detected in.*")
m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, nesterov=True); skipped = 0
with torch.autograd.detect_anomaly(check_nan=True):
    for step in range(20):
        x = torch.randn(8, 4); p = m(x).squeeze(1); loss = F.mse_loss(p, x.sum(1))
        if step % 6 == 2: loss = loss + torch.sqrt(F.relu(p - p.detach()) * 0).sum()
        opt.zero_grad()
        try: loss.backward()
        except RuntimeError as e: skipped += 1; print("skip", step, str(e).splitlines()[0]); opt.zero_grad(set_to_none=True); continue
        opt.step(); print(step, loss.item())
print(skipped, torch.is_anomaly_enabled()); show(m, opt)
