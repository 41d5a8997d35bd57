"""Old checkpoints brought up to date: _load_from_state_dict with versions and renamed keys, get_extra_state and set_extra_state, load hooks that report missing keys, strict errors' texts, assign=True, a checkpoint in torch's legacy format, BatchNorm without num_batches_tracked."""
import io
# PRELUDE
log = []


class Block(nn.Module):
    _version = 3

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.steps = 0
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def get_extra_state(self):
        log.append("get extra")
        return {"steps": self.steps}

    def set_extra_state(self, s):
        log.append(("set extra", s))
        self.steps = s["steps"]

    def _load_from_state_dict(self, sd, prefix, meta, strict, missing, unexpected, errors):
        v = meta.get("version")
        log.append((prefix, v))
        if v is None or v < 2:
            for k in ("weight", "bias"):
                if prefix + "linear." + k in sd:
                    sd[prefix + "fc." + k] = sd.pop(prefix + "linear." + k)
        super()._load_from_state_dict(sd, prefix, meta, strict, missing, unexpected, errors)

    def forward(self, x):
        self.steps += 1
        return x + self.norm(self.fc(x)).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.head(x)


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
def after_load(mod, keys):
    log.append((sorted(keys.missing_keys), sorted(keys.unexpected_keys)))


m.register_load_state_dict_post_hook(after_load)
print(train(m, opt, 3))
sd = m.state_dict()
print(list(sd), {k: v for k, v in sd._metadata.items()}, type(sd).__name__)
b = io.BytesIO()
torch.save(sd, b, _use_new_zipfile_serialization=False)
b.seek(0)
print(H(dict(torch.load(b, weights_only=True))), b.getvalue()[:2])
b.seek(0)
old = {k.replace(".fc.", ".linear."): v.clone() for k, v in sd.items() if "extra" not in k and "num_batches" not in k}
for kw in (dict(), dict(strict=False), dict(strict=False, assign=True)):
    try:
        print(m.load_state_dict(dict(old), **kw))
    except RuntimeError as e:
        print(str(e))
print(train(m, opt, 2, 3), M(m))
bad = dict(sd)
bad["head.weight"] = torch.zeros(3, 3)
bad["ghost"] = torch.zeros(1)
try:
    m.load_state_dict(bad)
except RuntimeError as e:
    print(str(e))
b.seek(0)
print(m.load_state_dict(torch.load(b, weights_only=True), assign=True), m.blocks[0].steps, m.head.weight.requires_grad)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2, 6), M(m), H([str(x) for x in log]), len(log), log[:4])
torch.save(m, "whole.pt")
