"""torchelastic from Python: elastic_launch starts a function of the script on two ranks and gives back what they return; a failing one raises ChildFailedError."""
# PRELUDE
import logging
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record

logging.disable(logging.CRITICAL)


@record
def trainer(steps, fail):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    m = nn.parallel.DistributedDataParallel(net(2))
    W(m)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    loss = train(m, opt, steps, 10 * dist.get_rank())
    h = M(m)
    dist.barrier()
    dist.destroy_process_group()
    if fail and os.environ["RANK"] == "1":
        raise ValueError("the rank's own")
    return loss, h, int(os.environ["RANK"])


if __name__ == "__main__":
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", run_id="x", max_restarts=0, monitor_interval=0.1, start_method="fork")
    out = elastic_launch(config, trainer)(3, False)
    print(sorted(out.items()))
    try:
        elastic_launch(config, trainer)(2, True)
    except ChildFailedError as e:
        print({r: (f.exitcode, f.message["message"] if isinstance(f.message, dict) else str(f.message)[:60]) for r, f in e.failures.items() if r == 1})
