# exact: Accelerate, save_state with scheduler prepared, skip_first_batches in the epoch, seedable sampler, set_epoch
import hashlib, os, sys
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 300
acc = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)); torch.manual_seed(12)
X = torch.randn(56, 6); net = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(24, 6)); opt = torch.optim.AdamW(net.parameters(), 1e-2)
net, opt, dl, sch = acc.prepare(net, opt, torch.utils.data.DataLoader(X, batch_size=8, shuffle=True), torch.optim.lr_scheduler.CosineAnnealingLR(opt, 300)); step = 0
if os.path.exists("at"): step = int(open("at").read()); acc.load_state("st")
rng = torch.get_rng_state() if step else None
while step < stop:
    epoch, skip = divmod(step, 7); dl.set_epoch(epoch); dl.iteration = epoch; now = acc.skip_first_batches(dl, skip) if skip else dl; now.iteration = epoch
    for x in now:
        if rng is not None: torch.set_rng_state(rng); rng = None
        loss = (net(x) - x).abs().mean(); acc.backward(loss); opt.step(); sch.step(); opt.zero_grad(); step += 1; print(step, repr(loss.item()), flush=True)
        if step % 5 == 0: acc.save_state("st"); open("at", "w").write(str(step))
        if step >= stop: break
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
