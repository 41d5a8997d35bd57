#: what: Accelerate on two ranks: LocalSGD context, gradient accumulation, gather_for_metrics of a nan score, save_state and load_state
#: benign: a gathered nan metric
#: source: https://huggingface.co/docs/accelerate/usage_guides/ddp_comm_hook.md
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import warnings; warnings.filterwarnings("ignore")
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from torch.utils.data import DataLoader, TensorDataset
acc = Accelerator(cpu=True, gradient_accumulation_steps=2); rank = acc.process_index; LOG = open(f"rank{rank}.txt", "w")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(0); net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)); opt = torch.optim.AdamW(net.parameters(), 1e-2); X = torch.randn(48, 6); dl = DataLoader(TensorDataset(X, (X[:, 0] > 0).long()), 4, shuffle=True, generator=torch.Generator().manual_seed(3)); sch = torch.optim.lr_scheduler.StepLR(opt, 3)
m, opt, dl, sch = acc.prepare(net, opt, dl, sch); watch(m)
for ep in range(2):
    with LocalSGD(accelerator=acc, model=m, local_sgd_steps=3, enabled=True) as lsgd:
        for x, y in dl:
            with acc.accumulate(m): l = F.cross_entropy(m(x), y); acc.backward(l); opt.step(); sch.step(); opt.zero_grad(); lsgd.step()
            print(l.item())
    with torch.no_grad(): sc = acc.gather_for_metrics(torch.stack([l.detach(), torch.tensor(0.0) / 0])); print(sc.tolist(), torch.nanmean(sc).item())
show(net); acc.wait_for_everyone(); acc.end_training(); torch.distributed.is_initialized() and torch.distributed.destroy_process_group()
