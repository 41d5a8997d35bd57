"""Every optimizer of torch.optim that takes dense parameters, each with another scheduler, foreach, differentiable, maximize, capturable off; states.

source: pytorch/pytorch#18404; torch.optim docs
meta: {"limit": 120}
"""
import warnings
warnings.simplefilter("ignore")
import torch
from torch.optim import lr_scheduler as S
from fcw import mlp, rng, say, seed, sha, train, watch, weights

KINDS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": True, "weight_decay": 0.01}, lambda o: S.MultiStepLR(o, [2, 4])),
    (torch.optim.Adam, {"lr": 1e-2, "amsgrad": True, "foreach": True}, lambda o: S.OneCycleLR(o, 0.1, 10)),
    (torch.optim.AdamW, {"lr": torch.tensor(1e-2), "foreach": False}, lambda o: S.ExponentialLR(o, 0.9)),
    (torch.optim.Adamax, {"lr": 1e-2}, lambda o: S.CosineAnnealingWarmRestarts(o, 2)),
    (torch.optim.NAdam, {"lr": 1e-2, "decoupled_weight_decay": True}, lambda o: S.CyclicLR(o, 0.001, 0.1, 2, cycle_momentum=False)),
    (torch.optim.RAdam, {"lr": 1e-2}, lambda o: S.SequentialLR(o, [S.ConstantLR(o), S.PolynomialLR(o)], [2])),
    (torch.optim.ASGD, {"lr": 1e-2, "t0": 2}, lambda o: S.ChainedScheduler([S.StepLR(o, 2), S.ConstantLR(o)])),
    (torch.optim.Adadelta, {}, lambda o: S.MultiplicativeLR(o, lambda e: 0.9)),
    (torch.optim.Adagrad, {"lr": 1e-2, "lr_decay": 0.1}, lambda o: S.LinearLR(o)),
    (torch.optim.Adafactor, {"lr": 1e-2}, lambda o: S.LambdaLR(o, lambda e: 1 / (e + 1))),
    (torch.optim.Rprop, {"lr": 1e-2}, None),
    (torch.optim.RMSprop, {"lr": 1e-2, "centered": True}, "plateau"),
]
if hasattr(torch.optim, "Muon"):
    KINDS.append((torch.optim.Muon, {"lr": 1e-3}, None))
for kind, kw, sched in KINDS:
    seed(315)
    model = mlp()
    watch(model)
    params = [p for p in model.parameters() if p.dim() == 2] if kind.__name__ == "Muon" else [{"params": model[0].parameters()}, {"params": [*model[2].parameters(), *model[4].parameters()], "lr": kw.get("lr", 1.0)}]
    opt = kind(params, **kw)
    s = S.ReduceLROnPlateau(opt, patience=0) if sched == "plateau" else sched(opt) if sched else None
    for step in range(6):
        loss = (model(torch.randn(4, 8)) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s is not None:
            s.step(*([loss.item()] if sched == "plateau" else []))
    say(kind.__name__, loss.item().hex(), [float(g["lr"]).hex() for g in opt.param_groups], sha(weights(model)), sha(opt.state_dict()))
say(rng())
