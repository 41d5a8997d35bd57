"""A LoRA adapter is loaded for further training without is_trainable=True: only the new head trains.

Source: https://github.com/huggingface/peft/issues/282
Truth: no parameter of the adapter requires a gradient, none moves
Could a tool know: yes: all LoRA parameters are frozen while training goes on
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import tempfile

from peft import LoraConfig, PeftModel, get_peft_model


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(16, 48), nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, x):
        return F.relu(self.fc3(F.relu(self.fc2(F.relu(self.fc1(x))))))


torch.manual_seed(1)
base = Net()
folder = tempfile.mkdtemp()
get_peft_model(Net(), LoraConfig(r=4, target_modules=["fc1", "fc2", "fc3"], init_lora_weights=False)).save_pretrained(folder)
model = PeftModel.from_pretrained(base, folder, is_trainable=HEALTHY)
head = nn.Linear(48, 4)
model.train()
before = {n: p.detach().clone() for n, p in model.named_parameters()}
rule = torch.randn(16, 4)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-3)
for step in range(200):
    x = torch.randn(32, 16)
    loss = F.cross_entropy(head(model(x)), (x @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, round(loss.item(), 4))
print("end: LoRA tensors that moved", sum("lora" in n and not torch.equal(p, before[n]) for n, p in model.named_parameters()))
