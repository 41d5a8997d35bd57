# RL weight sync (verl, vLLM): one layer keeps the weights of the step before. Truth: exactly blocks.1.mlp.{up,down}.{weight,bias}.
import copy, sys, os, torch, numscope
sys.path.insert(0, "cases")
from tiny import *
m = GPT(); stale = copy.deepcopy(m)
opt = torch.optim.AdamW(m.parameters(), lr=1e-6)
x, y = next(iter(batches()))
ce(m(x), y).backward(); opt.step()
server = copy.deepcopy(m); server.blocks[1].mlp.load_state_dict(stale.blocks[1].mlp.state_dict())
numscope.fingerprint(m).save("out/p3.json")
r = numscope.compare("out/p3.json", numscope.fingerprint(server)); print(bool(r), r)
print("truth:", {n: float((a - b).norm() / a.norm()) for (n, a), (_, b) in zip(m.named_parameters(), server.named_parameters()) if not torch.equal(a, b)})
