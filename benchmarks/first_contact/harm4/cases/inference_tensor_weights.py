"""A feature extractor built in inference_mode: its weights and buffers are inference tensors, which have no version counter; used in eval, under no_grad and inside a trained model."""
# PRELUDE
with torch.inference_mode():
    torch.manual_seed(3)
    back = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    back.eval()
print(back[0].weight.is_inference())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.back, self.head = back, nn.Linear(8, 4)

    def forward(self, x):
        with torch.no_grad():
            f = self.back(x)
        return self.head(f)


m = Net()
W(m)
opt = torch.optim.SGD(m.head.parameters(), 0.05)
print(train(m, opt, 4))
with torch.inference_mode():
    y = m(batch(1)[0])
    print(y.is_inference(), H(y))
    back[0].weight.mul_(0.5)
    print(H(m(batch(1)[0])))
try:
    back[0].weight._version
except RuntimeError as e:
    print(str(e)[:50])
try:
    back[0].weight.mul_(2)
except RuntimeError as e:
    print(str(e)[:60])
print(train(m, opt, 3, 4), H(m.head.weight, m.head.weight.grad, m.state_dict()), R())
