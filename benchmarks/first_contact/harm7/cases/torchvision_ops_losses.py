"""Sampled grids, RoI align, box losses with degenerate boxes, focal loss, nms, stochastic depth and drop block in a small detector must keep gradients, kept indices and random states."""
# PRELUDE
from torchvision import ops


class Det(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.off = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 27, 3, padding=1)
        self.d = nn.Conv2d(8, 8, 3, padding=1)
        self.fpn = ops.FeaturePyramidNetwork([8, 8], 6)
        self.se, self.drop = ops.SqueezeExcitation(6, 3), ops.DropBlock2d(0.2, 3)
        self.mlp = ops.MLP(6 * 9, [16, 9], dropout=0.1)

    def forward(self, x, boxes):
        h = F.relu(self.c(x), inplace=True)
        o, mask = (t.contiguous() for t in self.off(h).split([18, 9], 1))
        d = ops.stochastic_depth(self.d(F.grid_sample(h, (o[:, :2].tanh()).permute(0, 2, 3, 1), align_corners=False)) * mask.sigmoid()[:, :8], 0.2, "row", self.training) + h
        f = self.fpn({"a": h, "b": F.max_pool2d(d, 2)})
        r = ops.roi_align(self.drop(self.se(f["a"])), boxes, 3, 1.0, 2, True) + ops.roi_pool(f["b"], boxes, 3, 0.5) + ops.ps_roi_align(f["a"].repeat(1, 9, 1, 1), boxes, 3, 1.0)
        return self.mlp(r.flatten(1))


torch.manual_seed(2)
m = Det()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.02, momentum=0.9)
for s in range(4):
    g = torch.Generator().manual_seed(s)
    x = torch.randn(2, 3, 16, 16, generator=g)
    boxes = [torch.rand(3, 4, generator=g).mul_(8) for _ in range(2)]
    for b in boxes:
        b[:, 2:] += b[:, :2]
        b[0, 2:] = b[0, :2]  # degenerate
    gt = torch.cat(boxes) + 1.0
    out = m(x, boxes)
    pred = torch.cat(boxes) + out[:, :4].tanh()
    cls = out[:, 4:]
    loss = ops.generalized_box_iou_loss(pred, gt, "mean") + ops.distance_box_iou_loss(pred, gt, "mean") + ops.complete_box_iou_loss(pred, gt, "mean") + ops.sigmoid_focal_loss(cls, F.one_hot(torch.arange(6) % 5, 5).float(), reduction="mean")
    opt.zero_grad()
    loss.backward()
    opt.step()
    m.eval()
    with torch.no_grad():
        e = m(x, boxes)
        p = torch.cat(boxes) + e[:, :4]
        sc = e[:, 4:].sigmoid().max(1)
        keep = ops.batched_nms(p, sc.values, sc.indices, 0.3)
        iou = ops.box_iou(gt, torch.cat(boxes))
        gi = ops.generalized_box_iou(torch.cat(boxes), torch.cat(boxes))
        self_iou = ops.box_iou(boxes[0][:1], boxes[0][:1])  # 0 / 0
        print(s, keep.tolist(), H(iou), H(gi), self_iou.isnan().item(), H(ops.masks_to_boxes(x[0] > 0)), H(ops.clip_boxes_to_image(p, (16, 16))), ops.remove_small_boxes(p, 1.0).tolist(), H(ops.box_convert(p, "xyxy", "cxcywh")))
    m.train()
    print(s, float(loss.detach()).hex(), M(m), H(e), R())
