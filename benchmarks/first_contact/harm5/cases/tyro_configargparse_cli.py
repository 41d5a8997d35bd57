"""tyro with nested dataclasses and a union of configurations as a subcommand (nerfstudio's way), configargparse with a file and environment, dotenv, omegaconf merged and saved."""
# PRELUDE
import dataclasses, tyro, configargparse, yaml
from omegaconf import OmegaConf
from dotenv import load_dotenv
@dataclasses.dataclass(frozen=True)
class Opt:
    lr: float = 0.1
@dataclasses.dataclass
class DeepNet:
    h: int = 8
    def setup(self): return net(1, h=self.h)
@dataclasses.dataclass
class Flat:
    def setup(self): return nn.Linear(8, 4)
@dataclasses.dataclass
class Config:
    opt: Opt = dataclasses.field(default_factory=Opt)
    net: DeepNet | Flat = dataclasses.field(default_factory=Flat)
    steps: int = 2
def main(cfg: Config) -> int:
    m = cfg.net.setup()
    W(m)
    print(cfg, train(m, torch.optim.SGD(m.parameters(), cfg.opt.lr), cfg.steps), M(m))
    oc = OmegaConf.merge(OmegaConf.structured(Opt), {"lr": 0.3}, OmegaConf.create({}))
    OmegaConf.save(oc, "cfg.yaml")
    open(".env", "w").write("CAP_STEPS=3\n")
    load_dotenv(".env")
    p = configargparse.ArgParser(default_config_files=["cfg.yaml"], config_file_parser_class=configargparse.YAMLConfigFileParser)
    p.add("--lr", type=float)
    p.add("--steps", type=int, env_var="CAP_STEPS")
    a = p.parse_args([])
    print(a, train(m, torch.optim.SGD(m.parameters(), a.lr), a.steps), M(m), R())
    return 0
tyro.cli(main)
