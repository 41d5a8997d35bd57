"""A hydra sweep of two jobs in one process, each with a new model; files of both.

Source: https://github.com/hydra-ecosystem/hydra/pull/1465
"""
# PRELUDE
import hydra
from hydra.core.config_store import ConfigStore
ConfigStore.instance().store(name="c", node={"lr": 0.1})
@hydra.main(version_base="1.2", config_path=None, config_name="c")
def main(cfg):
    from hydra.core.hydra_config import HydraConfig
    m = net(); r = train(m, torch.optim.Adam(m.parameters(), cfg.lr), 4)
    print(HydraConfig.get().job.num, r, M(m)); torch.save(m.state_dict(), os.path.join(HydraConfig.get().runtime.output_dir, "w.pt"))
    return float.fromhex(r)
main()
