"""Random bits that both sides of a link can generate, and comparison with them."""

from __future__ import annotations

import hashlib

import torch


def seed(*words: object) -> int:
    """A number that is the same on all ranks for the same words."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:8], "little") >> 1


def pattern(num_bytes: int, *words: object) -> torch.Tensor:
    """Random bytes, uint8 [num_bytes], the same on all ranks for the same words."""
    generator = torch.Generator().manual_seed(seed(*words))
    words64 = torch.empty(-(-num_bytes // 8), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return words64.view(torch.uint8)[:num_bytes]


def difference(got: torch.Tensor, expected: torch.Tensor) -> dict[str, int] | None:
    """How two uint8 tensors differ: the first offset in bytes, the number of bytes and of bits; None if they are equal.

    *Cost:* one comparison; more only if they differ.
    """
    if torch.equal(got, expected):
        return None
    bits = got ^ expected
    where = bits.nonzero().view(-1)
    wrong = bits[where]
    num_bits = sum(int(((wrong >> shift) & 1).sum()) for shift in range(8))
    return {"first_offset": int(where[0]), "num_bytes": len(where), "num_bits": num_bits}


def digest(tensor: torch.Tensor) -> str:
    """A fingerprint of a float32 tensor's bits; a single flipped bit always changes it."""
    bits = tensor.detach().cpu().contiguous().view(-1).view(torch.int32).to(torch.int64)
    weights = torch.arange(1, 2 * len(bits), 2)  # odd, so that no difference of one element is lost modulo 2^64
    return f"{int((bits * weights).sum().item()) & (2**64 - 1):016x}"
