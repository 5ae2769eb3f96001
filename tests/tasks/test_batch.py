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


def test_a_batch_becomes_wider() -> None:
    tokens = torch.tensor([[5, 6, 7], [8, 0, 0]])
    real = torch.tensor([[True, True, True], [True, False, False]])
    start = torch.tensor([1, 0])
    targets = {"start": start, "allowed": real, "tags": tokens}
    batch = Batch(
        tokens=tokens, real=real, targets=targets, numbers=[4, 2], types=tokens, global_tokens=real
    )
    wide = batch.widened(4, 100)
    for have, was, value in (
        (wide.tokens, tokens, 0),
        (wide.real, real, False),
        (wide.types, tokens, 0),
        (wide.global_tokens, real, False),
        (wide.targets["allowed"], real, False),
        (wide.targets["tags"], tokens, NOT_COUNTED),
    ):
        assert have is not None and have.shape == (2, 4) and have.dtype == was.dtype
        assert torch.equal(have[:, :3], was) and (have[:, 3] == value).all()
    assert wide.targets["start"] is start and wide.numbers == [4, 2]
    assert batch.widened(3, 100) is batch
    assert batch.widened(16, 3) is batch
    assert batch.widened(16, 7).tokens.shape == (2, 7)
