"""A trained LoRA adapter is loaded, and the model is then wrapped by get_peft_model again: a new adapter trains from zero.

Source: https://github.com/huggingface/lerobot/issues/3459
Truth: the loss right after resuming is not that of the end of the first run
Could a tool know: partly: an adapter with a non-zero B is replaced before the first step
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import copy
import tempfile

from peft import LoraConfig, PeftModel, get_peft_model


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(16, 48), nn.Linear(48, 48), nn.Linear(48, 4)

    def forward(self, x):
        return self.out(F.relu(self.fc2(F.relu(self.fc1(x)))))


rule = torch.randn(16, 4)


def train(model, steps):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    for step in range(steps):
        x = torch.randn(64, 16)
        loss = F.cross_entropy(model(x), (x @ rule).argmax(1))
        if step in (0, steps - 1):
            print(step, round(loss.item(), 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


base = Net()
config = LoraConfig(r=4, target_modules=["fc1", "fc2", "out"])
first = get_peft_model(copy.deepcopy(base), config)
end = list(train(first, 200))[-1]
folder = tempfile.mkdtemp()
first.save_pretrained(folder)
model = PeftModel.from_pretrained(copy.deepcopy(base), folder, is_trainable=True)
if not HEALTHY:
    model = get_peft_model(model.unload(), config)
model.train()
resumed = list(train(model, 100))
print("end: loss before", round(end, 4), "after resuming", round(resumed[0], 4))
