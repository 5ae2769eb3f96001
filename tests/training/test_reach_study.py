"""What reaches follow: means beside loops over single tokens, and shares of variance that are
known.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import longspan as ls
from longspan.nn import LearnedWindow
from longspan.tasks.squad import Squad
from longspan.training import RunConfig, Stage, Trained, train
from longspan.training.reach_labels import LEVELS, labels_of
from longspan.training.reach_study import study_reach
from longspan.training.reach_sums import LayerSums
from longspan.training.token_kinds import pieces_of, words_of

from ..small_tasks import PLACES, trained_on
from .tiny import LEARNED, SLIDING, Tiny, config_for, stage

pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")


def squad_run(folder: Path, **settings: Any) -> Path:
    """A model whose windows differ much, though it has learned next to nothing."""
    lines = [
        {
            "question": f"Where does Ada No {n} live?",
            "context": f"It is said, in {n} books, that Ben had left. " * (n % 3)
            + f"Ada lives in {place}; nobody knows how long she lives.",
            "answer": place if n % 4 else "",
        }
        for n, place in enumerate(PLACES * 4)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {"length": 48, "stride": 12, "vocabulary": 330, "question_length": 16, **settings}
    train(
        RunConfig(
            task={
                "name": "squad",
                "data": str(folder / "train.jsonl"),
                "settings": {**settings, "cache": str(folder / "cache")},
            },
            model={"width": 16, "layers": 2, "heads": 2},
            mechanism={"kind": "LearnedWindow", "mean_reach": 4, "max_reach": 8},
            stages=[Stage(steps=2, batch=4)],
            output=str(folder / "run"),
        )
    )
    return folder / "run"


def loaded(run: Path) -> Trained:
    trained = ls.load(run)
    torch.manual_seed(0)
    with torch.no_grad():
        for own in trained.model.mechanisms():
            assert isinstance(own, LearnedWindow)
            own.U_d.normal_(std=0.5)
    return trained


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return loaded(squad_run(tmp_path_factory.mktemp("reaches")))


def bin_of(distance: int) -> str:
    for level in LEVELS["distance"][:-1]:
        low, _, high = level.partition("–")
        if int(low) <= distance <= int(high or low):
            return level
    return LEVELS["distance"][-1]


def token_by_token(trained: Trained) -> dict[tuple[str, int, str], list[float]]:
    """All reaches by (what, layer, level), one token after the other."""
    task = trained.task
    assert isinstance(task, Squad)
    found = defaultdict(list)
    for number in range(len(task.dev)):
        batch = task.batch([number], "dev")
        question = task.dev.question_of(number)
        text = task.dev.source.contexts[question.context]
        characters = task.dev.characters(number)
        inside = [n for n, place in enumerate(characters) if place is not None]
        pieces = pieces_of(text, [characters[n] for n in inside])
        with torch.no_grad():
            trained.objective.scores(trained.model, batch, False)
        for layer, own in enumerate(trained.model.mechanisms()):
            reach = own.last_reach[0].double()
            for head in range(reach.shape[0]):
                for token in range(len(characters)):
                    if batch.global_tokens is not None and batch.global_tokens[0, token]:
                        continue
                    value = float(reach[head, token])

                    def add(what: str, level: str) -> None:
                        found[what, layer, level].append(value)  # noqa: B023

                    add("all", f"head {head}")
                    if token not in inside:
                        last = token == len(characters) - 1
                        is_mark = token == 0 or last or token == inside[0] - 1
                        add("kind", "mark" if is_mark else "question")
                        continue
                    place = token - inside[0]
                    piece = pieces[place]
                    add("kind", piece.kind)
                    if piece.telling:
                        same = piece.word in words_of(question.text)
                        add("word", "in the question" if same else "not in the question")
                    add("position", LEVELS["position"][20 * place // len(inside)])
                    add("begin", bin_of(place))
                    add("end", bin_of(len(inside) - 1 - place))
                    start, end = (int(batch.targets[side][0]) for side in ("start", "end"))
                    if start > 0:
                        far = max(start - token, token - end, 0)
                        add("distance", bin_of(far))
                        add("answer", "other text" if far else "of the answer")
    return found


def check_means(trained: Trained) -> dict[str, Any]:
    found = trained.reaches(10_000, batch=3)
    wanted = token_by_token(trained)
    names = {what for what, _, _ in wanted} - {"all"}
    assert set(found["by"]) == names
    for name in names:
        own = found["by"][name]
        for n, level in enumerate(LEVELS[name]):
            values = [wanted.get((name, layer, level), []) for layer in range(2)]
            assert own["tokens"][n] == len(values[0]) / 2
            if not values[0]:
                assert own["mean"][n] is None
                continue
            both = values[0] + values[1]
            assert own["mean"][n] == pytest.approx(sum(both) / len(both), rel=1e-4)
            for layer in range(2):
                mean = sum(values[layer]) / len(values[layer])
                assert own["layers"][layer][n] == pytest.approx(mean, rel=1e-4)
    for layer in range(2):
        for head in range(2):
            values = sorted(wanted["all", layer, f"head {head}"])
            own = found["layers"][layer]["heads"][head]
            assert found["tokens"] == len(values)
            assert own["mean"] == pytest.approx(sum(values) / len(values), rel=1e-4)
            places = [round(share * (len(values) - 1)) for share in (0, 0.25, 0.5, 0.75, 1)]
            for given, at in zip(own["quantiles"], places, strict=True):
                near = values[max(at - 1, 0)] * 0.99, values[min(at + 1, len(values) - 1)] * 1.01
                assert near[0] <= given <= near[1]
            full = sum(value > 8 * (1 - 1e-6) for value in values) / len(values)
            assert own["at_most"] == pytest.approx(full, rel=1e-4)
    return found


def test_means_are_those_of_a_loop_over_tokens(trained: Trained) -> None:
    found = check_means(trained)
    assert set(found["by"]) == set(LEVELS)
    # Kinds, distances and their heads are there, and questions are global.
    kinds = dict(zip(LEVELS["kind"], found["by"]["kind"]["tokens"], strict=True))
    assert kinds["question"] == 0 and kinds["mark"] == found["examples"]
    assert all(kinds[name] for name in LEVELS["kind"][2:])
    assert len(found["by"]["distance"]["heads"]) == 2 == len(found["by"]["kind"]["heads"][0])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_questions_that_are_not_global_are_counted(tmp_path: Path) -> None:
    found = check_means(loaded(squad_run(tmp_path, global_tokens=False)))
    kinds = dict(zip(LEVELS["kind"], found["by"]["kind"]["tokens"], strict=True))
    assert kinds["question"] > 0 and kinds["mark"] == 3 * found["examples"]


def test_examples_are_spread_over_all(trained: Trained) -> None:
    seen = []
    own = trained.task.batch

    def batch(numbers: list[int], split: str = "train") -> Any:
        seen.extend(numbers)
        assert split == "dev"
        return own(numbers, split)

    trained.task.batch = batch  # type: ignore[method-assign]
    try:
        told: list[tuple[int, int]] = []
        found = trained.reaches(4, batch=3, told=lambda now, all_: told.append((now, all_)))
    finally:
        del trained.task.batch  # type: ignore[method-assign]
    count = len(trained.task.dev)
    assert count > 4 and sorted(seen) == [n * count // 4 for n in range(4)]
    assert found["examples"] == 4 and told == [(3, 4), (4, 4)]
    with pytest.raises(ValueError, match="examples must be at least 1"):
        trained.reaches(0)


def summed(reach: Tensor, **labels: Tensor) -> dict[str, float | None]:
    """Shares of variance of reaches `(H, T)`, counted in two parts."""
    sizes = {name: 40 for name in labels}
    sums = LayerSums(reach.shape[0], 1000, sizes, torch.device("cpu"))
    half = reach.shape[1] // 3
    for part in (slice(half), slice(half, None)):
        sums.add(reach[:, part], {name: own[part] for name, own in labels.items()})
    found = sums.explained()
    assert found.total == pytest.approx(
        float(reach.log().double().var(correction=0)) * reach.numel()
    )
    return {name: None if own is None else own / found.total for name, own in found.by.items()}


def test_what_the_reach_follows_alone_explains_all() -> None:
    generator = torch.Generator().manual_seed(0)
    kinds = torch.randint(0, 40, (3000,), generator=generator)
    others = torch.randint(0, 40, (3000,), generator=generator)
    by_kind = torch.rand(40, generator=generator).exp().double()[kinds].expand(4, -1)
    found = summed(by_kind, token=kinds, kind=others)
    for name in ("token", "place", "head and token"):
        assert found[name] == pytest.approx(1)
    # 40 groups of 75 members would explain a little by chance; that is not counted.
    assert found["head"] == pytest.approx(0, abs=1e-9) and found["kind"] < 0.01

    by_head = torch.tensor([1.0, 2.0, 5.0, 9.0]).double()[:, None].expand(4, 3000)
    found = summed(by_head, token=kinds)
    assert found["head"] == pytest.approx(1) and found["head and token"] == pytest.approx(1)
    assert found["place"] == pytest.approx(0, abs=1e-9) and found["token"] < 1e-9

    # Each head likes other tokens: neither head nor token alone says anything.
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0]).double()[:, None]
    found = summed((signs * (kinds % 2 * 2 - 1)).exp(), token=kinds)
    assert found["head and token"] == pytest.approx(1) and found["head"] < 0.01
    assert found["token"] == pytest.approx(0, abs=1e-9)


def test_noise_explains_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    reach = torch.randn(4, 3000, generator=generator).exp().double()
    labels = torch.arange(3000) // 75
    found = summed(reach, token=labels, position=torch.arange(3000) % 20)
    assert found["place"] == pytest.approx(1 / 4, abs=0.02)
    for name in ("head", "token", "position", "head and token"):
        assert found[name] < 0.01


def test_tokens_without_a_label_explain_nothing() -> None:
    """Those with a label are alike; that they differ from all others is not the label's doing."""
    labels = torch.arange(3000) % 2
    reach = torch.where(torch.arange(3000) < 1000, 9.0, 3.0).expand(2, -1)
    reach = reach * torch.rand(2, 3000, generator=torch.Generator().manual_seed(2)).exp()
    found = summed(reach, word=labels.where(torch.arange(3000) < 1000, -1))
    assert found["place"] > 0.7 and found["word"] < 0.01


def test_nobody_can_tell_where_every_token_is_the_only_one() -> None:
    labels = torch.arange(40)
    found = summed(torch.rand(2, 40).double() + 1, token=labels)
    assert found["token"] is None is found["head and token"]


def test_shares_of_layers_add_up(trained: Trained) -> None:
    """Layers differ by their means of ln(reach), and heads and places within them."""
    explained = trained.reaches()["explained"]
    task = trained.task
    values: list[list[float]] = [[], []]
    with torch.no_grad():
        for number in range(len(task.dev)):
            batch = task.batch([number], "dev")
            trained.objective.scores(trained.model, batch, False)
            kept = ~batch.global_tokens[0]  # type: ignore[index]
            for layer, own in enumerate(trained.model.mechanisms()):
                values[layer] += own.last_reach[0][:, kept].double().log().flatten().tolist()
    both = torch.tensor(values, dtype=torch.float64)
    between = both.mean(-1).var(correction=0) / both.var(correction=0)
    assert explained["all"]["layer"] == pytest.approx(float(between), rel=1e-3)
    assert 0 < explained["all"]["head"] + explained["all"]["place"] < 1
    for layer in explained["layers"]:
        assert 0 < layer["token"] < layer["place"] < 1


def test_a_window_that_has_learned_nothing_explains_nothing(trained: Trained) -> None:
    before = [own.U_d.detach().clone() for own in trained.model.mechanisms()]
    with torch.no_grad():
        for own in trained.model.mechanisms():
            own.U_d.zero_()
        found = trained.reaches(4)
        for own, was in zip(trained.model.mechanisms(), before, strict=True):
            own.U_d.copy_(was)
    assert set(found["explained"]["all"].values()) == {None}
    assert found["layers"][0]["quantiles"] == [4.0] * 5


def test_tokens_are_named(trained: Trained) -> None:
    named = trained.reaches()["named"]["all"]
    far, near = ([own["mean"] for own in named[end]] for end in ("far", "near"))
    assert far == sorted(far, reverse=True) and near == sorted(near) and min(far) > max(near)
    texts = [own["token"] for end in ("far", "near") for own in named[end]]
    assert len(set(texts)) == len(texts) and all(isinstance(text, str) for text in texts)
    assert all(own["tokens"] >= 10 for own in named["far"] + named["near"])


@pytest.mark.parametrize("name", ["classify", "tag", "translate", "birthplaces"])
def test_other_tasks_have_heads_tokens_and_places(name: str, tmp_path: Path) -> None:
    found = ls.load(trained_on(name, tmp_path)).reaches()
    assert set(found["by"]) == {"position", "begin", "end"}
    assert [own["layer"] for own in found["layers"]] == [0]
    assert set(found["explained"]["all"]) == {
        "layer", "head", "place", "token", "head and token", "position", "begin", "end",
    }  # fmt: skip


def test_spans_of_another_task_have_distances(tmp_path: Path) -> None:
    task = Tiny(objective="spans")
    config = config_for(tmp_path / "run", stage(), mechanism=LEARNED)
    train(config, task=task)
    trained = ls.load(tmp_path / "run", task=task)
    found = trained.reaches()
    assert set(found["by"]) == {"answer", "distance", "position", "begin", "end"}
    labels = labels_of(task, task.batch([0], "dev"))
    start = int(task.batch([0], "dev").targets["start"][0])
    assert int(labels["distance"][0, start]) == 0 == int(labels["answer"][0, start])
    assert found["by"]["answer"]["tokens"][0] <= 10


def test_without_learned_windows_that_is_said(tmp_path: Path) -> None:
    task = Tiny(objective="spans")
    train(config_for(tmp_path / "run", stage(), mechanism=SLIDING), task=task)
    trained = ls.load(tmp_path / "run", task=task)
    with pytest.raises(ValueError, match="no learned windows, its layers have SlidingWindow"):
        study_reach(trained.model, task)
