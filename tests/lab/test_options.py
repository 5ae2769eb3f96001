"""What `--option` gives to a recipe's function: names and types are looked at first."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from longspan.lab.options import named, options_of
from longspan.recipes import RECIPES

from .test_wrong_input import fails


def recipe(
    *,
    steps: int = 3,
    rate: float = 0.5,
    data: str | Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    pair: tuple[int, str] = (1, "a"),
    soft: bool = False,
    precision: Literal["float32", "bf16"] = "bf16",
    model: dict[str, Any] | None = None,
    anything: Any = None,
    untold=None,  # type: ignore[no-untyped-def]
) -> None:
    """A function with options of every kind."""


def test_arguments_without_a_name_are_not_asked_for() -> None:
    def own(*names: str, n: int = 3) -> None:
        """What Python takes so many of."""

    assert options_of(own, "mine", named(["n=4"])) == {"n": 4}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("steps=7", 7),
        ("rate=2", 2),
        ("rate=1e-4", 1e-4),
        ("data=a.json", "a.json"),
        ("data=null", None),
        ('data=["a.json", "b.json"]', ["a.json", "b.json"]),
        # A file may be called so.
        ("data=2024", "2024"),
        ("data=a=b", "a=b"),
        ("seeds=[3]", [3]),
        ('pair=[2, "b"]', [2, "b"]),
        ("soft=true", True),
        ("precision=float32", "float32"),
        ('model={"width": 3}', {"width": 3}),
        ("anything=[{}]", [{}]),
        ("untold=word", "word"),
    ],
)
def test_values_that_fit(given: str, value: object) -> None:
    name, _, _ = given.partition("=")
    assert options_of(recipe, "mine", named([given])) == {name: value}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("steps=abc", "--option steps takes a whole number, such as steps=3; got 'abc'"),
        ("steps=2.5", "--option steps takes a whole number, such as steps=3; got 2.5"),
        ("steps=true", "--option steps takes a whole number, such as steps=3; got true"),
        ("steps=", "--option steps takes a whole number, such as steps=3; got ''"),
        ("rate=[1]", "takes a number, such as rate=0.5; got [1]"),
        ("seeds=3", "takes a list of whole numbers, such as seeds=[0, 1, 2]; got 3"),
        ("seeds=abc", "takes a list of whole numbers, such as seeds=[0, 1, 2]; got 'abc'"),
        ('seeds=["a"]', 'takes a list of whole numbers, such as seeds=[0, 1, 2]; got ["a"]'),
        ("pair=[2]", 'takes a list of a whole number and a text, such as pair=[1, "a"]; got [2]'),
        ("soft=True", "takes true or false, such as soft=false; got 'True'"),
        ("precision=half", "takes float32 or bf16, such as precision=bf16; got 'half'"),
        ("model=3", "takes values by name or null; got 3"),
        ("stps=3", "mine has no option 'stps' (did you mean steps?); it has steps, rate, data"),
        ("unknown=1", "mine has no option 'unknown'; it has steps, rate, data"),
        ("steps", "--option takes name=value, got 'steps'"),
        ("=3", "--option takes name=value, got '=3'"),
    ],
)
def test_values_that_do_not(given: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        options_of(recipe, "mine", named([given]))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_functions_that_say_less() -> None:
    def any_name(**options: object) -> None: ...

    def needs(data: str) -> None: ...

    def unknown_type(data: Nowhere = None) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert options_of(any_name, "mine", {"a": ("1", 1)}) == {"a": 1}
    assert options_of(unknown_type, "mine", {"data": ("1", 1)}) == {"data": 1}
    with pytest.raises(ValueError, match="mine needs --option data=…, a text"):
        options_of(needs, "mine", {})


@pytest.mark.parametrize("name", RECIPES)
def test_every_option_of_every_recipe_has_a_type(name: str) -> None:
    for option in inspect.signature(RECIPES[name]).parameters:
        # A file may be called anything.
        if option not in ("data", "dev", "start"):
            with pytest.raises(ValueError, match=f"--option {option} takes "):
                options_of(RECIPES[name], name, named([f"{option}={{}}"]))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("steps=abc", "steps takes a whole number, such as steps=250; got 'abc'"),
        ("seeds=3", "seeds takes a list of whole numbers, such as seeds=[0, 1, 2]; got 3"),
        ("unknown=1", "quick has no option 'unknown'; it has steps, seeds, reach"),
        ("seeds=[0, 0]", "two runs of 'fixed, 4 back' have the seed 0"),
        ("seeds=[]", "has no runs"),
        ("steps=0", "steps must be at least 1, got 0"),
    ],
)
def test_nothing_is_begun(option: str, says: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for more in ([], ["--dry-run"], ["--jobs", "2"]):
        assert says in fails("run", "quick", "--option", option, "-o", runs, *more)
    assert not runs.exists()


def test_one_seed_for_all_runs_is_no_second_seed(tmp_path: Path) -> None:
    text = fails("run", "quick", "--set", "seed=1", "-o", tmp_path / "runs")
    assert "two runs of 'fixed, 4 back' have the seed 1" in text
    assert not (tmp_path / "runs").exists()
