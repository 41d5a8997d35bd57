"""Trains a small T5 in float16 on the text of Python's own manual. An ordinary training script: it knows nothing of numscope.

python examples/train_t5.py [--steps 200] [--lr 0.1] [--batch 8]

The recipe is a common one: float32 weights, float16 autocast, AdamW with warm-up. The mistake in it is the learning rate: the loss falls at
first, while the feed-forward layers' values grow from step to step, until some step after the hundredth float16 can't hold them any more.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics

import torch
from transformers import T5Config, T5ForConditionalGeneration

PAD, END = 0, 1
BYTES = 2  # a byte's token is its value + 2
SENTINELS = BYTES + 256  # then 16 tokens that stand for a span left out
WINDOW, SPAN = 96, 8  # bytes a sample, bytes a span left out


def manual() -> torch.Tensor:
    """The reference manual that ships with Python, as byte tokens."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long() + BYTES


def batch(text: torch.Tensor, size: int) -> dict[str, torch.Tensor]:
    """T5's own task: the input lacks two spans, the labels hold them."""
    inputs, labels = [], []
    for start in torch.randint(len(text) - WINDOW, (size,)).tolist():
        piece = text[start : start + WINDOW]
        first, second = (torch.randint(WINDOW // 2 - SPAN, (2,)) + torch.tensor([0, WINDOW // 2])).tolist()
        mark = [torch.tensor([SENTINELS + i]) for i in range(2)]
        inputs.append(torch.cat([piece[:first], mark[0], piece[first + SPAN : second], mark[1], piece[second + SPAN :]]))
        labels.append(torch.cat([mark[0], piece[first : first + SPAN], mark[1], piece[second : second + SPAN], torch.tensor([END])]))
    return {"input_ids": torch.stack(inputs), "labels": torch.stack(labels)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a model gains nothing from more, and with one the run is the same every time
    text = manual()
    config = T5Config(
        vocab_size=SENTINELS + 16,
        d_model=64,
        d_kv=16,
        d_ff=256,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=PAD,
        pad_token_id=PAD,
        eos_token_id=END,
    )
    model = T5ForConditionalGeneration(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))

    model.train()
    for step in range(args.steps):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(**batch(text, args.batch)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
