"""np.random's global generator runs on PCG64 (set_bit_generator), whose state has no legacy form: reading it the old way warns, and warnings are errors here; random is an instance of the script's own."""
# PRELUDE
import warnings

old = np.random.get_bit_generator()
np.random.set_bit_generator(np.random.PCG64(5))


class Mine(random.Random):
    draws = 0

    def random(self):
        Mine.draws += 1
        return super().random()


random._inst = Mine(3)
random.random, random.getrandbits = random._inst.random, random._inst.getrandbits
warnings.simplefilter("error")
S = lambda: H(np.random.get_state(legacy=False), torch.get_rng_state(), random.getstate(), Mine.draws)
print(S())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        keep = torch.from_numpy((np.random.rand(16) > 0.3).astype(np.float32))
        return self.out(self.fc(x).relu() * keep * (0.5 + random.random()))


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(5):
    print(train(m, opt, 1, s), S())
m.eval()
with torch.no_grad():
    print(H(torch.nan_to_num(m(batch(3)[0]).log(), nan=0.0)), S())
np.random.set_bit_generator(old)
print(np.random.get_bit_generator() is old, M(m), S())
