# torch's own recipe, an exact resume, is refused: numscope parity --resume 4 -- python dcp_exact.py (set_state_dict steps an empty optimizer once, with lr 0, before the weights are set)
import os, torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
torch.manual_seed(0); net = torch.nn.Linear(8, 8); opt = torch.optim.AdamW(net.parameters(), 1e-2); n = 0
if os.path.exists("last"):
    n = int(open("last").read()); m, o = get_state_dict(net, opt); s = {"m": m, "o": o}; dcp.load(s, checkpoint_id=f"c{n}"); set_state_dict(net, opt, model_state_dict=s["m"], optim_state_dict=s["o"])
while n < 100:
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(n)); loss = (net(x) - x.flip(1)).square().mean(); loss.backward(); opt.step(); opt.zero_grad(); n += 1; print(n, repr(loss.item()), flush=True)
    if n % 5 == 0: m, o = get_state_dict(net, opt); dcp.save({"m": m, "o": o}, checkpoint_id=f"c{n}"); open("last", "w").write(str(n))
