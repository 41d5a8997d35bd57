"""accelerate's LocalSGD on two ranks (no_sync, averaging every few steps), gather_for_metrics, broadcast_object_list, split_between_processes."""
# PRELUDE
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
m = net(2)
W(m)
ds = torch.utils.data.TensorDataset(*batch(0, 36))
dl = torch.utils.data.DataLoader(ds, 3, shuffle=True, generator=torch.Generator().manual_seed(1))
opt = torch.optim.SGD(m.parameters(), 0.05)
m, opt, dl = acc.prepare(m, opt, dl)
with LocalSGD(accelerator=acc, model=m, local_sgd_steps=3, enabled=True) as local:
    for ep in range(2):
        for x, y in dl:
            with acc.accumulate(m):
                loss = F.mse_loss(m(x), y)
                acc.backward(loss)
                opt.step()
                opt.zero_grad()
                local.step()
all_ = acc.gather_for_metrics(loss.detach().view(1))
with acc.split_between_processes([1, 2, 3]) as part:
    mine = [len(part), H(m.state_dict())]
from accelerate.utils import gather_object
o = gather_object([mine])
if acc.is_main_process:
    print(H(all_), o, R())
acc.end_training()
