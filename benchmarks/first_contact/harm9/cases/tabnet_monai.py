"""pytorch-tabnet (sparsemax, virtual batches, embeddings) fits; MONAI's Dice with nan for empty ground truth; kornia augmentations."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from pytorch_tabnet.tab_network import TabNet
from monai.metrics import DiceMetric, HausdorffDistanceMetric
from monai.losses import DiceCELoss
seed(62)
net = TabNet(6, 2, n_d=4, n_a=4, n_steps=2, virtual_batch_size=8, group_attention_matrix=torch.eye(6))
watch(net)
opt = torch.optim.Adam(net.parameters(), 2e-2)
for step in range(6):
    x = torch.randn(24, 6)
    out, ml = net(x)
    loss = F.cross_entropy(out, (x[:, 0] > 0).long()) - 1e-3 * ml
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss))
net.eval()
ex, masks = net.forward_masks(torch.randn(4, 6))
print(dig(ex, list(masks.values())))
seg = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.InstanceNorm2d(4), nn.PReLU(), nn.Conv2d(4, 3, 1))
watch(seg)
o2 = torch.optim.AdamW(seg.parameters(), 1e-2)
dm, hd, ls = DiceMetric(include_background=False, reduction="mean_batch", get_not_nans=True), HausdorffDistanceMetric(percentile=95), DiceCELoss(to_onehot_y=True, softmax=True)
for step in range(6):
    x = torch.randn(3, 1, 8, 8)
    y = (x > 0.5).long()
    loss = ls(seg(x), y)
    o2.zero_grad(); loss.backward(); o2.step()
    with torch.no_grad():
        p = F.one_hot(seg(x).argmax(1), 3).permute(0, 3, 1, 2)
        t = F.one_hot(y[:, 0], 3).permute(0, 3, 1, 2)
        dm(p, t)
        h = hd(p, t)
    print(step, dig(loss, h), int(torch.isnan(dm.get_buffer()).sum()))
print([dig(v) for v in dm.aggregate()])
end(net, opt); end(seg, o2)
