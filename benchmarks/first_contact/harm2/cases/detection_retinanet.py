"""torchvision's RetinaNet on two small pictures: losses as a dict, boxes of varying number, eval outputs.

Source: https://github.com/pytorch/vision (references/detection)
"""
# PRELUDE
import torchvision
torch.manual_seed(0)
m = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64)
opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=1e-4)
imgs = [torch.rand(3, 64, 64), torch.rand(3, 48, 64)]
tg = [dict(boxes=torch.tensor([[4.0, 4, 40, 40]]), labels=torch.tensor([1])), dict(boxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long))]
for s in range(2):
    losses = m(imgs, tg)
    loss = sum(losses.values())
    opt.zero_grad(); loss.backward(); opt.step()
    print({k: float(v.detach()).hex() for k, v in losses.items()})
m.eval()
with torch.no_grad():
    out = m(imgs)
print([{k: tuple(v.shape) for k, v in o.items()} for o in out], H([list(o.values()) for o in out]), M(m), R())
