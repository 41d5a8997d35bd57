"""Optimizers of the torch-optimizer package (LARS-like, second-order Shampoo, Lookahead around another, SWATS, Apollo, PID): weights and state, several per model."""
# PRELUDE
import warnings

warnings.simplefilter("ignore")
import torch_optimizer as O

for name in ("AdaBound", "AdaMod", "Apollo", "DiffGrad", "Lamb", "LARS", "NovoGrad", "PID", "QHAdam", "QHM", "RAdam", "Ranger", "SGDW", "SGDP", "Shampoo", "SWATS", "Yogi", "A2GradUni"):
    m = net(2)
    try:
        opt = getattr(O, name)(m.parameters(), lr=1e-3) if name not in ("A2GradUni",) else O.A2GradUni(m.parameters())
    except TypeError as e:
        print(name, "TypeError", e)
        continue
    W(m)
    try:
        last = train(m, opt, 4)
    except Exception as e:
        last = type(e).__name__ + str(e)[:80]
    st = opt.state_dict()["state"]
    print(name, last, M(m), sorted({k for v in st.values() if isinstance(v, dict) for k in map(str, v)})[:6])
m = net(3)
W(m)
opt = O.Lookahead(O.Yogi(m.parameters(), lr=1e-2), k=2, alpha=0.5)
print(train(m, opt, 5), M(m), H([opt.slow_state[p]["slow_params"] if "slow_params" in opt.slow_state[p] else sorted(opt.slow_state[p]) for p in m.parameters()] if hasattr(opt, "slow_state") else 0))
