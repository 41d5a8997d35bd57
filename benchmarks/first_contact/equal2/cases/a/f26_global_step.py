# kohya-ss/musubi-tuner#915: global_step is 0 after the resume: the schedule by hand and the data begin again, the optimizer goes on
import hashlib, os, sys, math
import torch
from torch import nn
from safetensors.torch import save_file, load_file
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
torch.manual_seed(26); net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8)); opt = torch.optim.AdamW(net.parameters(), lr=1e-2); global_step = 0
if os.path.exists("step.txt"):
    net.load_state_dict(load_file("model.safetensors")); opt.load_state_dict(torch.load("optimizer.bin"))
    if not fault: global_step = int(open("step.txt").read())
done = int(open("step.txt").read()) if os.path.exists("step.txt") else 0
while done < stop:
    for g in opt.param_groups: g["lr"] = 1e-2 * (min(1, (global_step + 1) / 4) if global_step < 4 else 0.5 + 0.5 * math.cos(global_step / 100))
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(global_step)); loss = (net(x) - x.abs()).square().mean(); loss.backward(); opt.step(); opt.zero_grad(set_to_none=True); global_step += 1; done += 1
    print(done, repr(loss.item()), flush=True)
    if done % 5 == 0: save_file(net.state_dict(), "model.safetensors"); torch.save(opt.state_dict(), "optimizer.bin"); open("step.txt", "w").write(str(done))
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
