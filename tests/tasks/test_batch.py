"""Batches."""

from __future__ import annotations

import torch

from longspan.tasks import NOT_COUNTED, Batch
from longspan.tasks.batch import padded, real_of


def test_rows_are_padded_on_the_right() -> None:
    rows = [torch.tensor([1, 2, 3]), torch.tensor([4])]
    assert padded(rows, 9).tolist() == [[1, 2, 3], [4, 9, 9]]
    assert real_of(rows).tolist() == [[True, True, True], [True, False, False]]


def test_targets_are_counted() -> None:
    tokens = torch.zeros(2, 3, dtype=torch.long)
    real = torch.ones(2, 3, dtype=torch.bool)
    asked = torch.tensor([[1, NOT_COUNTED, 0], [NOT_COUNTED, NOT_COUNTED, 2]])
    for name in ("tokens", "tags"):
        batch = Batch(tokens=tokens, real=real, targets={name: asked}, numbers=[0, 1])
        assert batch.target_count() == 3
    spans = {"start": torch.tensor([0, NOT_COUNTED]), "end": torch.tensor([0, 1]), "allowed": real}
    assert Batch(tokens=tokens, real=real, targets=spans, numbers=[0, 1]).target_count() == 1


def test_a_batch_goes_to_a_device_whole() -> None:
    tokens = torch.zeros(1, 2, dtype=torch.long)
    real = torch.ones(1, 2, dtype=torch.bool)
    batch = Batch(
        tokens=tokens,
        real=real,
        types=tokens,
        targets={"tokens": tokens},
        source={"tokens": tokens, "real": real},
        numbers=[5],
    ).to("meta")
    assert batch.source is not None and batch.types is not None
    found = [batch.tokens, batch.real, batch.types, batch.targets["tokens"], batch.source["real"]]
    assert {tensor.device.type for tensor in found} == {"meta"}
    assert batch.numbers == [5] and batch.global_tokens is None
