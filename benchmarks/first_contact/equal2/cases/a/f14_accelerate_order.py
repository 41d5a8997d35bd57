# huggingface/accelerate#3996 (pull request #4232): after load_state a prepared loader with a seedable sampler is at epoch 0 again
import hashlib, os, sys
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
acc = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)); torch.manual_seed(14)
x = torch.randn(40, 5); net = torch.nn.Sequential(torch.nn.Linear(5, 30), torch.nn.ReLU(), torch.nn.Linear(30, 1)); opt = torch.optim.Adam(net.parameters(), 1e-2)
net, opt, dl = acc.prepare(net, opt, DataLoader(TensorDataset(x, (x ** 2).sum(1, keepdim=True)), batch_size=8, shuffle=True)); epoch0 = 0
if os.path.exists("state"):
    acc.load_state("state"); epoch0 = int(open("state/epoch").read())
step = epoch0 * 5
for epoch in range(epoch0, 1000):
    if not fault: dl.set_epoch(epoch); dl.iteration = epoch
    for a, b in dl:
        loss = (net(a) - b).abs().mean(); acc.backward(loss); opt.step(); opt.zero_grad(); step += 1; print(step, repr(loss.item()), flush=True)
        if step >= stop: break
    if step >= stop: break
    acc.save_state("state"); open("state/epoch", "w").write(str(epoch + 1))
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
