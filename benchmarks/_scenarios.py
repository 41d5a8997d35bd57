"""Training runs for ``foresight.py``: some diverge by themselves, some are healthy; nothing bad is planted in any of them.

A scenario is made from its seed. ``step`` does one training step of an ordinary loop; ``between`` is called with the loss where gradients
are there and the optimizer has not stepped, which is where some peers must be called.
"""

from __future__ import annotations

import math
import pydoc_data.topics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LENGTH, BATCH, WIDTH = 32, 16, 64


@dataclass
class Training:
    """One run. ``model``: what a user would watch; ``others``: further models that are trained beside it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[int], Tensor]
    rate: Callable[[int], float]
    others: tuple[nn.Module, ...] = ()
    clip: float | None = None
    first: Callable[[int], None] | None = None  # what a step does before: another model's own update

    def step(self, number: int, between: Callable[[float], None] = lambda loss: None) -> float:
        """A step of training. Returns: its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(number)
        if self.first is not None:
            self.first(number)
        self.optimizer.zero_grad()
        loss = self.loss(number)
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        value = loss.item()
        between(value)
        self.optimizer.step()
        return value


# ---- models


class Block(nn.Module):
    def __init__(self, norm: bool, gain: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH) if norm else nn.Identity() for _ in range(2))
        self.q, self.k, self.v, self.proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        with torch.no_grad():
            self.q.weight *= gain
            self.k.weight *= gain

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(-1, (4, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    """Three layers on bytes."""

    def __init__(self, norm: bool = True, gain: float = 1.0, dropout: float = 0.0, layers: int = 3) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(norm, gain) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH) if norm else nn.Identity(), nn.Linear(WIDTH, 256)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.token(ids) + self.place.weight)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.rnn, self.head = (
            nn.Embedding(256, WIDTH),
            nn.LSTM(WIDTH, 2 * WIDTH, 2, batch_first=True),
            nn.Linear(2 * WIDTH, 256),
        )

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.token(ids))[0])


def cnn(width: int = 16) -> nn.Sequential:
    def stage(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    return nn.Sequential(*stage(3, width), *stage(width, 2 * width), *stage(2 * width, 4 * width), nn.Flatten(), nn.Linear(16 * width, 10))


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=172, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    return LlamaForCausalLM(config)


# ---- data


def manual() -> Tensor:
    """The reference manual that ships with Python, as bytes."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def words(size: int = BATCH) -> Callable[[], tuple[Tensor, Tensor]]:
    """Batches of text: bytes, and the bytes that follow them."""
    text = manual()

    def draw() -> tuple[Tensor, Tensor]:
        piece = torch.stack([text[s : s + LENGTH + 1] for s in torch.randint(len(text) - LENGTH - 1, (size,)).tolist()])
        return piece[:, :-1], piece[:, 1:]

    return draw


def images(size: int = 32) -> Callable[[], tuple[Tensor, Tensor]]:
    """Batches of ten patterns under noise: 3 x 16 x 16, and which it is."""
    patterns = torch.randn(10, 3, 16, 16)

    def draw() -> tuple[Tensor, Tensor]:
        label = torch.randint(10, (size,))
        return patterns[label] + 2 * torch.randn(size, 3, 16, 16), label

    return draw


def text_loss(model: nn.Module, size: int = BATCH, low: torch.dtype | None = None) -> Callable[[int], Tensor]:
    draw = words(size)

    def loss(number: int) -> Tensor:
        ids, following = draw()
        with torch.autocast("cpu", dtype=low or torch.bfloat16, enabled=low is not None):
            out = model(ids)
        logits = out if isinstance(out, Tensor) else out.logits
        return F.cross_entropy(logits.float().flatten(0, 1), following.flatten())

    return loss


def image_loss(model: nn.Module, size: int = 32) -> Callable[[int], Tensor]:
    draw = images(size)

    def loss(number: int) -> Tensor:
        pictures, label = draw()
        return F.cross_entropy(model(pictures), label)

    return loss


# ---- rates


def ramp(first: float, last: float, steps: int) -> Callable[[int], float]:
    """Grows by the same factor each step."""
    return lambda number: first * (last / first) ** (number / steps)


def warm_up(top: float, steps: int, constant: bool = True, total: int = 1000) -> Callable[[int], float]:
    def rate(number: int) -> float:
        if number < steps or constant:
            return top * min(1.0, (number + 1) / steps)
        return top * 0.5 * (1 + math.cos(math.pi * (number - steps) / (total - steps)))

    return rate


def restarts(top: float, period: int) -> Callable[[int], float]:
    """Cosine with warm restarts."""
    return lambda number: top * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (number % period) / period)))


def always(value: float) -> Callable[[int], float]:
    return lambda number: value


# ---- scenarios


def _gpt(rate: Callable[[int], float], sgd: bool = False, size: int = BATCH, clip: float | None = None, **more: float) -> Training:
    settings = {name: more.pop(name) for name in ("eps", "weight_decay") if name in more}
    model = GPT(**more)  # type: ignore[arg-type]
    kind = torch.optim.SGD(model.parameters(), momentum=0.9) if sgd else torch.optim.AdamW(model.parameters(), **settings)  # type: ignore[arg-type]
    return Training(model, kind, text_loss(model, size), rate, clip=clip)


def _t5() -> Training:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=256, d_model=64, d_kv=16, d_ff=256, num_layers=3, num_decoder_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model, draw = T5ForConditionalGeneration(config).train(), words()

    def loss(number: int) -> Tensor:
        ids, following = draw()
        with torch.autocast("cpu", dtype=torch.float16):
            found: Tensor = model(input_ids=ids, labels=following.contiguous()).loss
        return found

    return Training(model, torch.optim.AdamW(model.parameters(), weight_decay=0.0), loss, warm_up(0.1, 100))


def _image(model: nn.Module, rate: Callable[[int], float], sgd: bool = True, size: int = 32) -> Training:
    kind = torch.optim.SGD(model.parameters(), momentum=0.9) if sgd else torch.optim.Adam(model.parameters())
    return Training(model, kind, image_loss(model, size), rate)


def _gan() -> Training:
    maker, judge = mlp(8, 64, 64, 2), mlp(2, 64, 64, 1)
    judging = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.999))

    def real() -> Tensor:
        angle = torch.randint(8, (64,)) * (math.pi / 4)
        return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(64, 2)

    def first(number: int) -> None:
        judging.zero_grad()
        made = maker(torch.randn(64, 8)).detach()
        (F.softplus(-judge(real())).mean() + F.softplus(judge(made)).mean()).backward()
        judging.step()

    def loss(number: int) -> Tensor:
        return F.softplus(-judge(maker(torch.randn(64, 8)))).mean()

    return Training(maker, torch.optim.Adam(maker.parameters(), betas=(0.5, 0.999)), loss, always(1e-3), others=(judge,), first=first)


def _autoencoder(rate: Callable[[int], float]) -> Training:
    model, draw = mlp(768, 128, 16, 128, 768), images()

    def loss(number: int) -> Tensor:
        pictures, _ = draw()
        return F.mse_loss(model(pictures.flatten(1)), pictures.flatten(1))

    return Training(model, torch.optim.Adam(model.parameters()), loss, rate)


def _lstm(rate: Callable[[int], float], clip: float | None) -> Training:
    model = LSTM()
    return Training(model, torch.optim.SGD(model.parameters(), momentum=0.9), text_loss(model), rate, clip=clip)


def _llama(rate: Callable[[int], float], clip: float | None = None) -> Training:
    model = llama()
    return Training(model, torch.optim.AdamW(model.parameters()), text_loss(model, low=torch.bfloat16), rate, clip=clip)


# What the rules' settings were found on.
DIVERGING: dict[str, Callable[[], Training]] = {
    "AdamW, rate ramped": lambda: _gpt(ramp(1e-3, 1.0, 600)),
    "SGD, rate ramped": lambda: _gpt(ramp(0.02, 20.0, 600), sgd=True),
    "no normalization": lambda: _gpt(ramp(1e-3, 0.3, 600), norm=False),
    "large attention gains": lambda: _gpt(warm_up(0.1, 700), gain=8.0),
    "tiny Adam eps": lambda: _gpt(ramp(1e-3, 0.3, 800), eps=1e-20, clip=1.0),
    "float16 growth": _t5,
}
HEALTHY: dict[str, Callable[[], Training]] = {
    "warm-up": lambda: _gpt(warm_up(3e-3, 100)),
    "cosine with restarts": lambda: _gpt(restarts(3e-3, 200)),
    "SGD": lambda: _gpt(warm_up(0.1, 100), sgd=True),
    "dropout": lambda: _gpt(warm_up(2e-3, 100, constant=False), dropout=0.2),
    "small CNN": lambda: _image(cnn(), always(0.02)),
    "GAN": _gan,
    "tiny batch": lambda: _gpt(warm_up(1e-3, 50), size=1),
}
# What was kept aside: other models, other settings.
DIVERGING_ASIDE: dict[str, Callable[[], Training]] = {
    "LSTM, SGD, rate ramped": lambda: _lstm(ramp(0.1, 100.0, 600), None),
    "Llama in bfloat16, AdamW, rate ramped": lambda: _llama(ramp(1e-3, 1.0, 500)),
    "CNN, SGD, rate ramped": lambda: _image(cnn(), ramp(0.01, 100.0, 500)),
}
HEALTHY_ASIDE: dict[str, Callable[[], Training]] = {
    "long warm-up": lambda: _gpt(warm_up(5e-3, 800)),
    "Llama in bfloat16, clipped": lambda: _llama(warm_up(3e-3, 100, constant=False), 1.0),
    "LSTM, clipped": lambda: _lstm(warm_up(0.5, 50), 1.0),
    "autoencoder": lambda: _autoencoder(always(1e-3)),
    "MLP, Adam, one cycle": lambda: _image(nn.Sequential(nn.Flatten(), *mlp(768, 256, 128, 10)), warm_up(3e-3, 300, constant=False), False),
}
