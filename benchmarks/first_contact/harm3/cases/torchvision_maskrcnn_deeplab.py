"""Mask R-CNN (tiny images, varying targets, eval in the middle) and DeepLabV3 with its auxiliary head and batch norm frozen; losses as dicts, random sampler of proposals."""
# PRELUDE
import torchvision as tv

m = tv.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
m.train()
opt = torch.optim.SGD([{"params": m.backbone.parameters(), "lr": 1e-3}, {"params": m.classifier.parameters(), "lr": 1e-2}], lr=1e-3, momentum=0.9)
for s in range(2):
    g = torch.Generator().manual_seed(s)
    out = m(torch.rand(2, 3, 48, 48, generator=g))["out"]
    loss = F.cross_entropy(out, torch.randint(0, 4, (2, 48, 48), generator=g), ignore_index=255)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, loss.item().hex())
print(H(dict(m.state_dict())))
bb = tv.models.mobilenet_v3_small(weights=None).features[:4]
bb.out_channels = 24
an = tv.models.detection.rpn.AnchorGenerator(((8, 16),), ((1.0,),))
r = tv.models.detection.MaskRCNN(bb, 3, rpn_anchor_generator=an, min_size=48, max_size=64, rpn_pre_nms_top_n_train=30, rpn_post_nms_top_n_train=10, rpn_pre_nms_top_n_test=20, rpn_post_nms_top_n_test=8, box_batch_size_per_image=8,
                                 box_roi_pool=tv.ops.MultiScaleRoIAlign(["0"], 3, 2), mask_roi_pool=tv.ops.MultiScaleRoIAlign(["0"], 6, 2))
opt = torch.optim.SGD(r.parameters(), lr=1e-3)
for s in range(2):
    r.train()
    g = torch.Generator().manual_seed(s)
    im = [torch.rand(3, 40, 48, generator=g), torch.rand(3, 50, 44, generator=g)]
    tg = [{"boxes": torch.tensor([[4.0, 4, 30, 30]]), "labels": torch.tensor([1]), "masks": torch.ones(1, 40, 48, dtype=torch.uint8)},
          {"boxes": torch.tensor([[2.0, 2, 20, 20], [10, 12, 40, 40]]), "labels": torch.tensor([2, 1]), "masks": torch.ones(2, 50, 44, dtype=torch.uint8)}]
    ls = r(im, tg)
    opt.zero_grad()
    sum(ls.values()).backward()
    opt.step()
    print(s, {k: v.item().hex() for k, v in sorted(ls.items())})
    r.eval()
    with torch.no_grad():
        print([H(d) for d in r(im)])
print(H(dict(r.state_dict())), R())
