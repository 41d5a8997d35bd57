# tied model against a checkpoint with lm_head (same values), then one whose head drifted. Truth: equal; then head alone, 0.001 of the norm.
import copy, sys, torch, numscope
sys.path.insert(0, "cases")
from tiny import *
m = GPT(tie=True); u = GPT(); u.load_state_dict(m.state_dict())
r = numscope.compare(numscope.fingerprint(m), numscope.fingerprint(u)); print("same:", bool(r), r)
with torch.no_grad(): u.head.weight *= 1.001
r = numscope.compare(numscope.fingerprint(m), numscope.fingerprint(u)); print("drifted:", bool(r), r)
