"""accelerate on two ranks: uneven data with join_uneven_inputs, gather_for_metrics of nan, find_executable_batch_size with a memory error within forward, trackers of its own."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size, set_seed, gather_object
set_seed(81)
acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
rank = acc.process_index
out = open(f"rank{rank}.txt", "w")
tries = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 2)

    def forward(self, x):
        h = self.a(x).relu()
        if len(x) > 8:
            raise RuntimeError("CUDA out of memory.")
        return self.b(h)


@find_executable_batch_size(starting_batch_size=16)
def run(batch_size):
    tries.append(batch_size)
    set_seed(81)
    net = Net()
    watch(net)
    opt = torch.optim.AdamW(net.parameters(), 1e-2)
    data = torch.utils.data.TensorDataset(torch.randn(40, 6), torch.randint(0, 2, (40,)))
    dl = torch.utils.data.DataLoader(data, batch_size, shuffle=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.01, total_steps=40)
    net, opt, dl, sched = acc.prepare(net, opt, dl, sched)
    for epoch in range(3):
        for x, y in dl:
            with acc.accumulate(net):
                loss = F.cross_entropy(net(x), y)
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(net.parameters(), 1.0)
                opt.step(); sched.step(); opt.zero_grad()
        net.eval()
        with torch.no_grad():
            p = net(data.tensors[0][rank * 4:rank * 4 + 4])
            m = acc.gather_for_metrics((p.argmax(1) == 3).float().sum() / 0 * 0)
        net.train()
        out.write(f"{epoch} {dig(loss, m)}\n")
    out.write(f"{dig(dict(net.state_dict()), opt.state_dict()['state'])} {rngs()}\n")


run()
out.write(f"{tries}\n")
out.close()
acc.end_training()
