# float32 trainer, bfloat16 server. Truth: differs by rounding only (about 0.0017 of the norm); then, in bfloat16 too, one layer doubled;
# then one bfloat16 weight whose difference from the trainer is 3 times what rounding does.
import copy, sys, torch, numscope
sys.path.insert(0, "cases")
from tiny import *
m = GPT(); s = copy.deepcopy(m).bfloat16()
f = numscope.fingerprint(m)
r = numscope.compare(f, numscope.fingerprint(s)); print("cast:", bool(r), r)
r = numscope.compare(numscope.fingerprint(copy.deepcopy(m).bfloat16()), numscope.fingerprint(s)); print("both cast:", bool(r), r)
with torch.no_grad(): s.blocks[0].mlp.up.weight *= 2
r = numscope.compare(f, numscope.fingerprint(s)); print("one doubled:", bool(r), r)
s = copy.deepcopy(m).bfloat16()
with torch.no_grad():
    w = m.blocks[0].mlp.up.weight; n = torch.randn_like(w); s.blocks[0].mlp.up.weight.copy_(w + n * 0.005 * w.norm() / n.norm())
r = numscope.compare(f, numscope.fingerprint(s)); print("one off by 0.005:", bool(r), r)
