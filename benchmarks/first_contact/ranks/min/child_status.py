# two forked ranks; rank 1's loss is nan in step 2; the parent ends with: K=max the children's largest exit code, K=one 1, K=zero 0, K=spawn mp.start_processes' own exception
import os, sys, multiprocessing
from fcutil import *
import torch.multiprocessing as mp
def work(r, port):
    os.environ.update(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)); dist.init_process_group("gloo")
    torch.manual_seed(0); net = MLP(); opt = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(5):
        x, y = data(step, r); loss = F.mse_loss(net(x), y)
        if r == 1 and step == 2: loss = loss / (loss.detach() * 0)
        opt.zero_grad(); loss.backward(); opt.step()
if __name__ == "__main__":
    K = os.environ["K"]
    if K == "spawn": mp.start_processes(work, args=(free_port(),), nprocs=2, start_method="fork"); sys.exit(0)
    port = free_port(); ctx = multiprocessing.get_context("fork"); ps = [ctx.Process(target=work, args=(r, port)) for r in range(2)]
    [p.start() for p in ps]; [p.join() for p in ps]
    say("children", [p.exitcode for p in ps])
    sys.exit({"max": max(p.exitcode for p in ps), "one": 1, "zero": 0}[K])
