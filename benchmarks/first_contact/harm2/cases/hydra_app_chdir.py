"""A hydra app that changes into its run folder: files, job log without times, cwd, status of an exception.

Source: https://github.com/hydra-ecosystem/hydra/pull/252
"""
# PRELUDE
import hydra, logging
from omegaconf import OmegaConf, DictConfig
from hydra.core.config_store import ConfigStore
ConfigStore.instance().store(name="c", node={"lr": 0.1, "n": 3})
@hydra.main(version_base="1.2", config_path=None, config_name="c")
def main(cfg: DictConfig):
    m = net(); print(train(m, torch.optim.SGD(m.parameters(), cfg.lr), cfg.n), os.path.basename(os.getcwd()))
    torch.save(m.state_dict(), "w.pt")
    for h in logging.root.handlers:
        print(type(h).__name__, h.level, logging.root.level)
    logging.shutdown(); open("case.log", "w").close() if os.path.exists("case.log") else None
    raise KeyError("ends here")
main()
