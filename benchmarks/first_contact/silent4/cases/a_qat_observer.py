from _training import *
import warnings; warnings.filterwarnings("ignore")
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver
def fq(): return FakeQuantize(observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8)
class QLinear(nn.Linear):
    def __init__(s, i, o): super().__init__(i, o); s.wq, s.aq = fq(), fq()
    def forward(s, x): return F.linear(s.aq(x), s.wq(s.weight), s.bias)
def enable_observer(m):
    if type(m) is FakeQuantize: m.enable_observer() if H else m.disable_observer()
x, y = blobs(2000, s=1.5); net = nn.Sequential(QLinear(16, 64), nn.ReLU(), QLinear(64, 4)); net.apply(enable_observer)
opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(300):
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
truth(loss=loss.item(), weight_scale=net[0].wq.scale.item())
