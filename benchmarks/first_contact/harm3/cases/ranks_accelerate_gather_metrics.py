"""accelerate under torchrun on two ranks: prepare, gather_for_metrics with a last uneven batch, split_between_processes, main_process_first, save_state by the main process, a trigger flag."""
# PRELUDE
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed(5)
a = Accelerator(cpu=True)
r = a.process_index
g = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(22, 8, generator=g), torch.randn(22, 4, generator=g))
m = net(1)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
m, opt, dl, ev = a.prepare(m, opt, torch.utils.data.DataLoader(data, batch_size=4, shuffle=True), torch.utils.data.DataLoader(data, batch_size=4))
W(m)
out = []
for e in range(2):
    m.train()
    for k, (x, t) in enumerate(dl):
        with a.accumulate(m):
            loss = F.mse_loss(m(x), t)
            a.backward(loss)
            if a.sync_gradients:
                a.clip_grad_norm_(m.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        if k == 1:
            a.set_trigger() if r == 1 else None
            out.append(a.check_trigger())
    m.eval()
    preds = []
    for x, t in ev:
        with torch.no_grad():
            preds.append(a.gather_for_metrics(m(x)))
    out.append((len(torch.cat(preds)), H(torch.cat(preds))))
with a.split_between_processes(list(range(5))) as part:
    out.append(part)
with a.main_process_first():
    out.append(r)
with open(f"r{r}.txt", "w") as f:
    print(out, M(a.unwrap_model(m)), file=f)
a.end_training()
