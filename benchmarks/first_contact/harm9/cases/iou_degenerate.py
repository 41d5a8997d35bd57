"""Detection: padded boxes of no area give an IoU of 0/0 when anchors are matched; comparisons with nan are False; Hungarian costs with inf."""
# PRELUDE
from scipy.optimize import linear_sum_assignment
seed(27)


def iou(a, b):
    area = lambda z: (z[..., 2] - z[..., 0]) * (z[..., 3] - z[..., 1])
    lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    i = wh[..., 0] * wh[..., 1]
    return i / (area(a)[:, None] + area(b)[None] - i)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.cls, self.box = nn.Linear(16, 32), nn.Linear(32, 3), nn.Linear(32, 4)

    def forward(self, f):
        h = self.b(f).relu()
        return self.cls(h), self.box(h)


net = Head()
watch(net)
opt = torch.optim.AdamW(net.parameters(), 5e-3)
anchors = torch.cat([torch.rand(12, 2), torch.rand(12, 2) + 1], 1)
anchors[[2, 5]] = 0
for step in range(20):
    f = torch.randn(12, 16)
    gt = torch.cat([torch.rand(5, 2), torch.rand(5, 2) + 1], 1)
    gt[3:] = 0
    m = iou(anchors, gt)
    hit = m > 0.5
    cls, box = net(f)
    cost = (torch.cdist(box.detach(), gt, 1) - 2 * m.nan_to_num(0)).masked_fill(m.isnan(), 1e4)
    r, c = linear_sum_assignment(cost.numpy())
    t = torch.zeros(12).long()
    t[torch.from_numpy(r)] = torch.from_numpy(c) % 3
    loss = F.cross_entropy(cls, t) + F.l1_loss(box[torch.from_numpy(r)], gt[torch.from_numpy(c)])
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss, m), int(m.isnan().sum()), int(hit.sum()), c.tolist())
end(net, opt)
