"""Tools that hook the model themselves beside the watch: torch's FlopCounterMode, a thop count, a feature extractor; their numbers.

source: pytorch/vision#5193, facebook FLOP counters; thop (installed)
meta: {"compare": ["status", "stdout", "files", "left", "tmp"]}
"""
import warnings
warnings.simplefilter("ignore")
import contextlib
import io
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.feature_extraction import create_feature_extractor
from fcw import grads, rng, say, seed, sha, watch, weights

seed(324)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.05)
for part in range(3):
    with FlopCounterMode(display=False) as flops:
        loss = nn.functional.cross_entropy(net(torch.randn(2, 1, 8, 8)), torch.tensor([0, 2]))
        opt.zero_grad()
        loss.backward()
    opt.step()
    say(loss.item().hex(), flops.get_total_flops(), sha(grads(net)))
    import thop

    with contextlib.redirect_stdout(io.StringIO()):
        say_me = thop.profile(net, (torch.ones(1, 1, 8, 8),), verbose=False)
    say(say_me, sorted(k for k in net.state_dict() if "total" in k))
    f = create_feature_extractor(net, ["1", "4"])
    say({k: sha(v) for k, v in f(torch.ones(1, 1, 8, 8)).items()})
say(net.training, sha(weights(net)), rng())
