"""Mechanisms under the Trainer of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from longspan import hf
from longspan.hf.layers import attention_layers
from longspan.nn import LearnedWindow, SlidingWindow

from .tiny import config, transformers

pytest.importorskip("accelerate")

LENGTH, FAR = 24, 9


class Texts(Dataset[dict[str, Tensor]]):
    """Two kinds, told apart by one token."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(number)
        ids = torch.randint(5, 40, (LENGTH,), generator=generator)
        ids[0], ids[FAR] = 1, 3 + number % 2
        real = torch.ones(LENGTH, dtype=torch.long)
        if number % 3 == 0:
            real[20:] = 0
        return {"input_ids": ids, "attention_mask": real, "labels": torch.tensor(number % 2)}


def classifier(mechanism: Any, **more: Any) -> Any:
    torch.manual_seed(3)
    own = config("bert")
    own.num_labels = 2
    own.hidden_dropout_prob = own.attention_probs_dropout_prob = 0.0
    own.initializer_range = 0.2
    made = transformers.BertForSequenceClassification(own)
    hf.use(made, mechanism, **more)
    return made


def trainer(made: Any, folder: Path, steps: int, **more: Any) -> Any:
    options: dict[str, Any] = dict(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        use_cpu=True,
        bf16=True,
        gradient_checkpointing=True,
        save_steps=12,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        seed=5,
        dataloader_pin_memory=False,
    )
    arguments = transformers.TrainingArguments(**{**options, **more})
    return transformers.Trainer(made, arguments, train_dataset=Texts())


def losses(run: Any) -> list[float]:
    return [entry["loss"] for entry in run.state.log_history if "loss" in entry]


def learned() -> LearnedWindow:
    torch.manual_seed(4)
    return LearnedWindow(32, 4, mean_reach=6, max_reach=12)


def test_a_learned_window_learns_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Half precision, recomputed layers, a checkpoint; the reach networks learn too."""
    made = classifier(learned())
    start = {name: p.detach().clone() for name, p in made.named_parameters() if "longspan" in name}
    run = trainer(made, tmp_path / "run", 24, lr_scheduler_type="constant")
    run.train()
    assert losses(run)[-1] < 0.5 * losses(run)[0]
    assert len(start) == 4
    for name, parameter in made.named_parameters():
        if name in start:
            assert not torch.equal(parameter, start[name]), name

    again = classifier(learned())
    rest = trainer(again, tmp_path / "run", 24, lr_scheduler_type="constant")
    rest.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-12"))
    assert losses(rest) == losses(run)
    for (name, a), b in zip(made.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name

    hf.save(run.model, tmp_path / "saved")
    back, plain = hf.load(tmp_path / "saved"), classifier(learned()).eval()
    plain.load_state_dict(made.state_dict())
    batch = {name: value[None] for name, value in Texts()[3].items()}
    assert torch.equal(back(**batch).logits, plain(**batch).logits)


def test_global_tokens_need_nothing_of_the_batch(tmp_path: Path) -> None:
    """The first token, which is the one that is classified, sees everything."""
    made = classifier(SlidingWindow(32, 4, left=2), global_tokens=lambda input_ids: input_ids == 1)
    own = attention_layers(made)[1].longspan.q_global.weight
    start = own.detach().clone()
    run = trainer(made, tmp_path, 16, save_strategy="no", lr_scheduler_type="constant")
    run.train()
    assert losses(run)[-1] < 0.5 * losses(run)[0]
    assert not torch.equal(own, start)
