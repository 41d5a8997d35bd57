# places365/semantic-segmentation style saves of named_parameters only, loaded with strict=False: batch norm's statistics are lost (CSAILVision/places365#78)
import hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
torch.manual_seed(29); net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3)); opt = torch.optim.Adagrad(net.parameters(), 0.05); it = 0
if os.path.exists("encoder.pth"): net.load_state_dict(torch.load("encoder.pth"), strict=False); m = torch.load("optim.pth"); opt.load_state_dict(m["o"]); it = m["it"]
probe = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
while it < stop:
    g = torch.Generator().manual_seed(it + 10); x = torch.randn(4, 1, 8, 8, generator=g) * 2 + 1; loss = nn.functional.cross_entropy(net(x), (x[:, 0, 2:-2, 2:-2] > 1).long()); opt.zero_grad(); loss.backward(); opt.step(); it += 1
    print(it, repr(loss.item()), repr(net[1].running_mean.sum().item()), flush=True)
    if it % 5 == 0: torch.save(dict(net.named_parameters()) if fault else net.state_dict(), "encoder.pth"); torch.save({"o": opt.state_dict(), "it": it}, "optim.pth")
net.eval(); print("end", repr(net(probe).sum().item()), hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
