"""create_feature_extractor (fx) from a watched backbone, IntermediateLayerGetter with FPN, v2 transforms with mixup and cutmix, a video network with stochastic depth, RAFT's correlation pyramid."""
# PRELUDE
import torchvision as tv
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.ops import FeaturePyramidNetwork, StochasticDepth, DropBlock2d
from torchvision.transforms import v2
from PIL import Image
b = tv.models.mobilenet_v3_small(num_classes=4)
W(b)
fe = create_feature_extractor(b, {"features.2": "lo", "features.5.add": "mid", "flatten": "hi"})
fpn, db, sd, head = FeaturePyramidNetwork([24, 40], 16), DropBlock2d(0.2, 3), StochasticDepth(0.3, "row"), nn.Linear(576, 4)
alls = nn.ModuleList([fe, fpn, head])
W(alls)
tf = v2.Compose([v2.RandomResizedCrop(40, scale=(0.5, 1)), v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.RandomErasing(0.5)])
mix = v2.RandomChoice([v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)])
opt = torch.optim.SGD(alls.parameters(), 0.01)
rs = np.random.RandomState(1)
for s in range(3):
    ims = torch.stack([tf(Image.fromarray(rs.randint(0, 255, (48, 48, 3), dtype=np.uint8))) for _ in range(4)])
    x, y = mix(ims, torch.randint(0, 4, (4,)))
    f = fe(x)
    p = fpn({"a": f["lo"], "b": f["mid"]})
    loss = F.cross_entropy(head(f["hi"]), y) + sd(db(p["a"])).square().mean() * 0.1
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss).hex())
print(H(get_graph_node_names(b)[0]), len(list(fe.graph.nodes)), M(alls), R())
