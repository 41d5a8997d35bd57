# Accelerate: accumulate(); --do nodivide: the loss is scaled back up by the number of micro-batches (as code does that had divided it itself); --do extra: it is divided twice (huggingface/trl#5619's question)
import argparse, hashlib
import torch
from accelerate import Accelerator
a = argparse.ArgumentParser(); a.add_argument("--do", default=""); a.add_argument("--micro", type=int, default=1); a.add_argument("--steps", type=int, default=50); a = a.parse_args()
acc = Accelerator(cpu=True, gradient_accumulation_steps=a.micro); torch.manual_seed(34)
net = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.ReLU(), torch.nn.Linear(24, 2)); opt = torch.optim.SGD(net.parameters(), 0.1); X = torch.randn(400, 6)
size = 8 // a.micro // acc.num_processes; net, opt, dl = acc.prepare(net, opt, torch.utils.data.DataLoader(X, batch_size=size)); step, total = 0, 0.0
for x in dl:
    with acc.accumulate(net):
        loss = torch.nn.functional.cross_entropy(net(x), (x.sum(1) > 0).long())
        if a.do == "nodivide": loss = loss * a.micro
        if a.do == "extra": loss = loss / a.micro
        acc.backward(loss); total += loss.item() / a.micro; norms = " ".join(f"{p.grad.norm().item():.6g}" for p in net.parameters()); opt.step(); opt.zero_grad()
    if acc.sync_gradients:
        if acc.is_main_process: print(step, repr(total), norms, hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:12], flush=True)
        step, total = step + 1, 0.0
    if step >= a.steps: break
