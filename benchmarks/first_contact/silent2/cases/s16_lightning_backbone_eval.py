"""Lightning >= 2.2: a backbone from_pretrained is in eval mode and stays so in fit: its dropout never acts, while the module's own head trains.
Source: https://github.com/Lightning-AI/pytorch-lightning/issues/20128 (also autogluon issue 4965)
Truth: backbone.training in the training step.
Could a tool know: yes/partly. A trainable part with dropout is in eval mode through all steps; a part in eval can be meant.
"""
import sys, tempfile, warnings, logging, torch, torch.nn.functional as F
warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
from torch.utils.data import DataLoader, TensorDataset
from transformers import DistilBertConfig, DistilBertModel
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
d = tempfile.mkdtemp()
DistilBertModel(DistilBertConfig(vocab_size=60, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=16)).save_pretrained(d)

class Text(L.LightningModule):
    def __init__(self):
        super().__init__(); self.bert = DistilBertModel.from_pretrained(d); self.project_final = torch.nn.Linear(32, 3); self.seen = None
        if HEALTHY: self.bert.train()
    def training_step(self, b, i):
        x, y = b; self.seen = self.bert.training
        return F.cross_entropy(self.project_final(self.bert(x)[0][:, 0]), y)
    def configure_optimizers(self): return torch.optim.Adam(self.parameters(), 1e-3)

x = torch.randint(0, 60, (640, 10)); ds = TensorDataset(x, x[:, 2] // 20)
m = Text(); tr = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
tr.fit(m, DataLoader(ds, 16, shuffle=True))
print(f"TRUTH backbone.training in the last step: {m.seen}; steps {tr.global_step}")
