"""SummaryWriter of torch (add_graph by tracing the trained model, histograms, embeddings, hparams): tags, values and the graph's node names read back; files removed by the script."""
# PRELUDE
import shutil

from torch.utils.tensorboard import SummaryWriter

m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
w = SummaryWriter("tb")
for s in range(3):
    w.add_scalar("loss", float.fromhex(train(m, opt, 1, first=s)), s)
    for n, p in m.named_parameters():
        w.add_histogram(n, p, s)
        w.add_histogram(n + ".grad", p.grad, s)
w.add_graph(m, batch(0)[0])
print(train(m, opt, 1))
w.close()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

e = EventAccumulator("tb")
e.Reload()
print(e.Tags()["histograms"], [v.value.hex() for v in e.Scalars("loss")], [(h.histogram_value.num, float(h.histogram_value.sum).hex()) for h in e.Histograms("0.weight")])
print([(n.name, n.op) for n in e.Graph().node], M(m))
shutil.rmtree("tb")
