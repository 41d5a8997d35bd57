from _training import *
from accelerate import Accelerator
acc_ = Accelerator(cpu=True); ds = torch.utils.data.TensorDataset(*blobs(1024, s=2.))
dl = torch.utils.data.DataLoader(ds, 32, shuffle=True); net = mlp(16, 32, 4); opt = torch.optim.Adam(net.parameters(), 2e-3)
if H: net, opt, dl = acc_.prepare(net, opt, dl)
else: net, opt = acc_.prepare(net, opt)
seen = []
for epoch in range(6):
    for x, y in dl:
        loss = F.cross_entropy(net(x), y); opt.zero_grad(); acc_.backward(loss); opt.step(); seen.append(x.sum())
s = acc_.gather(torch.stack(seen)).view(acc_.num_processes, -1)
if acc_.is_main_process: truth(share_of_equal_batches=(s[0] == s[1]).float().mean().item())
acc_.end_training()
