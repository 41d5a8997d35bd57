# mp.start_processes (fork): rank 1 raises in step 3 while rank 0 is between steps; the parent catches ProcessRaisedException and ends with status 7
from fcutil import *
import torch.multiprocessing as mp
def work(r, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(r)); dist.init_process_group("gloo", rank=r, world_size=2); torch.manual_seed(0); net = MLP(); opt = torch.optim.SGD(net.parameters(), 0.05)
    for step in range(6):
        x, y = data(step, r); opt.zero_grad(); F.mse_loss(net(x), y).backward(); opt.step()
        say("rank", r, step, digest(net.state_dict())) if step < 3 else None
        dist.barrier()
        if step == 2 and r == 1: raise KeyError("label")
        if step == 2: time.sleep(30)
if __name__ == "__main__":
    try: mp.start_processes(work, args=(free_port(),), nprocs=2, start_method="fork")
    except mp.ProcessRaisedException as e: say("caught", e.error_index, "KeyError" in str(e)); sys.exit(7)
