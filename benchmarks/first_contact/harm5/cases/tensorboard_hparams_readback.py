"""SummaryWriter with scalars, histograms of weights and gradients, hparams, embeddings and images; the event files read back tag by tag and their values hashed; tensorboardX next to it."""
# PRELUDE
from torch.utils.tensorboard import SummaryWriter
import tensorboardX
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
m = net(2)
W(m)
w, wx = SummaryWriter("tb", flush_secs=1), tensorboardX.SummaryWriter("tbx")
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    x, y = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    for n, p in m.named_parameters():
        w.add_histogram(n, p, s)
        w.add_histogram(n + ".grad", p.grad, s)
        wx.add_histogram(n, p.detach().numpy(), s)
    opt.step()
    w.add_scalar("loss", loss, s)
    w.add_scalars("both", {"a": loss, "b": loss * 2}, s)
w.add_image("w", (m[2].weight.detach() - m[2].weight.min())[None], 0)
w.add_embedding(m[0].weight.detach(), metadata=[str(i) for i in range(16)])
w.add_hparams({"lr": 0.05}, {"final": loss.item()}, run_name="hp")
w.close(), wx.close()
for d in ("tb", "tb/hp", "tbx"):
    e = EventAccumulator(d, {"histograms": 0, "scalars": 0, "images": 0})
    e.Reload()
    t = e.Tags()
    print(d, t["scalars"], H([[v.value for v in e.Scalars(k)] for k in t["scalars"]]), len(t["histograms"]), H([[tuple(v.histogram_value) if not hasattr(v.histogram_value, "bucket") else (list(v.histogram_value.bucket), v.histogram_value.sum) for v in e.Histograms(k)] for k in t["histograms"]]), H([v.encoded_image_string for k in t["images"] for v in e.Images(k)]))
print(M(m), R())
