"""A fast tokenizer that has used its parallelism, a healthy training, and an evaluation without gradients whose metric has a harmless nan (0/0 for an empty class) that is replaced: same output, no warning about forks, which the script never makes."""
# PRELUDE
from tokenizers import Tokenizer, models, pre_tokenizers
words = "<pad> <unk> a b c d e f g h".split()
tk = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
tk.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tk.enable_padding(pad_id=0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.o = nn.Embedding(10, 8, padding_idx=0), nn.Linear(8, 3)
    def forward(self, t):
        mask = (t != 0).float()
        pooled = (self.e(t) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        if not self.training:
            pooled = torch.nan_to_num(pooled)
        return self.o(pooled)
m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(5):
    txt = [" ".join(random.choices(words[2:], k=random.randint(2, 6))) for _ in range(8)]
    t = torch.tensor([e.ids for e in tk.encode_batch(txt)])
    loss = F.cross_entropy(m(t), t[:, 0] % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
m.eval()
with torch.no_grad():
    t = torch.tensor([e.ids for e in tk.encode_batch(["a b", "", "c"])])
    print(H(m(t)), m(t).isnan().any().item())
m.train()
for s in range(3):
    t = torch.tensor([e.ids for e in tk.encode_batch(["a b c", "d e", "f"])])
    loss = F.cross_entropy(m(t), torch.tensor([0, 1, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(float(loss.detach()).hex(), M(m), R())
