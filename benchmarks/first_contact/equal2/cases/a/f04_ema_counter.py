# m2lines/Samudra#282: the averaged copy's own count of updates, by which its decay warms up, begins at 0
import copy, hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class EMA(nn.Module):
    def __init__(self, model, decay=0.999):
        super().__init__(); self.module = copy.deepcopy(model).requires_grad_(False); self.decay = decay; self.num_updates = 0
    def update(self, model):
        self.num_updates += 1; d = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for a, b in zip(self.module.parameters(), model.parameters()): a.data.mul_(d).add_(b.data, alpha=1 - d)
def main():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.GELU(), nn.Conv1d(8, 2, 3, padding=1)); ema = EMA(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2); start = 0
    if os.path.isfile("ckpt.pt"):
        c = torch.load("ckpt.pt"); net.load_state_dict(c["net"]); ema.module.load_state_dict(c["ema"]); opt.load_state_dict(c["opt"]); start = c["it"]
        if not fault: ema.num_updates = c["num_updates"]
    for it in range(start, stop):
        x = torch.randn(4, 2, 16, generator=torch.Generator().manual_seed(it))
        loss = (net(x) - x.roll(1, -1)).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); ema.update(net)
        print(it + 1, repr(loss.item()), repr(sum(p.double().sum().item() for p in ema.parameters())), flush=True)
        if (it + 1) % 5 == 0: torch.save(dict(net=net.state_dict(), ema=ema.module.state_dict(), opt=opt.state_dict(), it=it + 1, num_updates=ema.num_updates), "ckpt.pt")
    print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (net, ema) for p in m.parameters())).hexdigest()[:16])
main()
