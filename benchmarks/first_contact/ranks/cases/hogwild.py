# Hogwild: one model in shared memory, three forked processes train it (in turn, so that it can be compared), then the parent tests it
from fcutil import *
import torch.multiprocessing as mp
def train(k, model, turn):
    torch.manual_seed(k); opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.5)
    for step in range(5):
        while turn.value % 3 != k: time.sleep(0.001)
        x, y = data(step, k); opt.zero_grad(); loss = F.mse_loss(model(x), y); loss.backward(); opt.step()
        say("worker", k, step, loss.item()); turn.value += 1
if __name__ == "__main__":
    mp.set_start_method("fork", force=True); torch.manual_seed(1)
    model = MLP(); model.share_memory(); turn = mp.Value("i", 0)
    ps = [mp.Process(target=train, args=(k, model, turn)) for k in range(3)]
    [p.start() for p in ps]; [p.join() for p in ps]
    model.eval()
    with torch.no_grad(): say("test", F.mse_loss(model(data(0, 9)[0]), data(0, 9)[1]).item(), digest(model.state_dict()))
    torch.save(model.state_dict(), "hogwild.pt")
