#: what: parameter-free optimizers: DAdaptAdam, Prodigy, Lion and pytorch_optimizer's Lookahead in one comparison, state dicts reloaded midway
#: source: https://github.com/facebookresearch/dadaptation/pull/13
# PRELUDE
import copy, dadaptation, prodigyopt, lion_pytorch, pytorch_optimizer as po
base = nn.Sequential(nn.Linear(5, 12), nn.SiLU(), nn.Linear(12, 1))
for name, mk in dict(dadapt=lambda p: dadaptation.DAdaptAdam(p, lr=1.0), prodigy=lambda p: prodigyopt.Prodigy(p, lr=1.0, safeguard_warmup=True), lion=lambda p: lion_pytorch.Lion(p, lr=1e-3, weight_decay=1e-2), look=lambda p: po.Lookahead(po.AdaBelief(p, lr=1e-2), k=3)).items():
    m = copy.deepcopy(base); watch(m); opt = mk(m.parameters()); seed(7)
    for s in range(12):
        x = torch.randn(16, 5); l = F.mse_loss(m(x), x.prod(1, keepdim=True)); opt.zero_grad(); l.backward(); opt.step()
        if s == 5: opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    print(name, l.item(), [g.get("d") for g in opt.param_groups]); show(m); print(sha([{k: v for k, v in st.items()} for st in opt.state.values()]))
