# huggingface/accelerate#4289, facebookresearch/fairseq2#1346: the GradScaler of the checkpoint is not restored
import hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
torch.manual_seed(12); net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 10)); opt = torch.optim.AdamW(net.parameters(), lr=3e-3); scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3); i = 0
try:
    saved = torch.load("state.pt"); net.load_state_dict(saved["net"]); opt.load_state_dict(saved["opt"]); i = saved["i"]
    if not fault: scaler.load_state_dict(saved["scaler"])
except FileNotFoundError: print("from scratch")
while i < stop:
    x = torch.randn(16, 10, generator=torch.Generator().manual_seed(i))
    with torch.autocast("cpu", torch.float16): loss = (net(x).float() - x.flip(1)).square().mean()
    opt.zero_grad(); scaler.scale(loss).backward(); scaler.unscale_(opt); nn.utils.clip_grad_norm_(net.parameters(), 1.0); scaler.step(opt); scaler.update(); i += 1
    print(i, repr(loss.item()), scaler.get_scale(), flush=True)
    if i % 5 == 0: torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict(), "i": i}, "state.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
