"""EMA by a deepcopied twin and by AveragedModel with buffers, SWA with its scheduler and update_bn, teacher in evaluation.

source: lucidrains/ema-pytorch#6, pytorch/vision PR 5469, Lightning-AI/pytorch-lightning#8106
"""
import copy
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, SWALR, get_ema_multi_avg_fn, update_bn
from fcw import rng, say, seed, sha, watch, weights

seed(40)
net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(24, 3))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
teacher = copy.deepcopy(net).eval().requires_grad_(False)
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
swa, sched = AveragedModel(net), SWALR(opt, swa_lr=0.02, anneal_epochs=3)
for step in range(8):
    x = torch.randn(5, 2, 8)
    with torch.no_grad():
        target = teacher(x).softmax(1)
    loss = nn.functional.cross_entropy(net(x), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update_parameters(net)
    with torch.no_grad():
        for a, b in zip(teacher.state_dict().values(), net.state_dict().values()):
            a.copy_(a * 0.99 + b * 0.01) if a.is_floating_point() else a.copy_(b)
    if step > 3:
        swa.update_parameters(net)
        sched.step()
    say(loss.item().hex(), opt.param_groups[0]["lr"].hex())
update_bn([torch.randn(5, 2, 8) for _ in range(3)], swa)
for m in (teacher, ema, swa, net):
    say(sha(weights(m)), m.training)
torch.save([m.state_dict() for m in (teacher, ema, swa)], "averages.pt")
torch.save(teacher, "teacher.pt")
say(rng())
