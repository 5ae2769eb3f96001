"""Big Bird's attention against its formula: one function at every length, in both modes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from longspan.nn import BigBird, MultiheadAttention, Setting
from longspan.patterns import bigbird

from .naive import attend, gradients, join, real_tokens, split

E, H, BLOCK = 6, 2, 2
TABLE = [[5, 3], [6, -1], [0, 6], [1, 5], [2, 0], [1, 2], [4, 3]]


def layer_of(key_heads: int | None = None, **options: Any) -> MultiheadAttention:
    made = BigBird(**{"length": 14, "block": BLOCK, "table": TABLE, **options})
    return MultiheadAttention(E, H, made, key_heads=key_heads).double()


def input_of(batch: int, n: int) -> Tensor:
    return torch.randn(batch, n, E, dtype=torch.float64, requires_grad=True)


def naive(
    layer: MultiheadAttention,
    x: Tensor,
    *,
    table: list[Any],
    real: Tensor,
    tokens: list[set[int]],
    side: int = 1,
) -> Tensor:
    """The paper's formula, row by row; `tokens` names each sample's global tokens. A table is of
    all heads, or of each.
    """
    each = table if table and isinstance(table[0][0], list) else [table] * H

    def sees(b: int, h: int, i: int, j: int) -> bool:
        near = abs(j // BLOCK - i // BLOCK) <= side
        drawn = bool(table) and j // BLOCK in each[h][i // BLOCK]
        return bool(real[b, j]) and (near or drawn or i in tokens[b] or j in tokens[b])

    own = [split(p(x), E // H) for p in (layer.q_proj, layer.k_proj, layer.v_proj)]
    return layer.out_proj(join(attend(*own, sees)))


def check(
    layer: MultiheadAttention, x: Tensor, expected: Tensor, rows: Tensor, **call: Any
) -> None:
    y, keep = layer(x, **call), rows[..., None]
    torch.testing.assert_close(y * keep, expected * keep, rtol=1e-9, atol=1e-10)
    found, wanted = (gradients(out * keep, x, layer) for out in (y, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


def ends(length: int, size: int) -> set[int]:
    return {i for i in range(length) if i < size or i >= length - size}


@pytest.mark.parametrize("n", [1, 3, 5, 9, 14])
@pytest.mark.parametrize("blocks", [0, 1])
def test_internal_tokens_at_any_length(n: int, blocks: int) -> None:
    layer, x = layer_of(global_blocks=blocks), input_of(1, n)
    everything = torch.ones(1, n).bool()
    tokens = [ends(n, blocks * BLOCK)]
    expected = naive(layer, x, table=TABLE, real=everything, tokens=tokens)
    check(layer, x, expected, everything)


@pytest.mark.parametrize("key_heads", [1, 2])
def test_internal_tokens_with_padding(key_heads: int) -> None:
    layer, x = layer_of(key_heads), input_of(3, 12)
    real = real_tokens(12, 7, 1, n=12)
    tokens = [ends(length, BLOCK) for length in (12, 7, 1)]
    expected = naive(layer, x, table=TABLE, real=real, tokens=tokens)
    check(layer, x, expected, real, key_padding=real)


@pytest.mark.parametrize("table", [None, TABLE], ids=["none drawn", "drawn"])
def test_extra_tokens(table: list[list[int]] | None) -> None:
    layer, x = layer_of(tokens="extra", table=table), input_of(3, 11)
    marks = torch.zeros(3, 11).bool()
    marks[0, :2] = marks[2, 7] = True
    real = real_tokens(11, 8, 9, n=11)
    tokens = [{0, 1}, set(), {7}]
    expected = naive(layer, x, table=table or [], real=real, tokens=tokens)
    check(layer, x, expected, real, key_padding=real, global_tokens=marks)


@pytest.mark.parametrize("tokens", ["internal", "extra"])
def test_a_draw_for_every_head(tokens: Any) -> None:
    tables = [TABLE, [[3], [4, 5], [0], [6], [1, 2], [], [2, 3]]]
    layer, x = layer_of(table=tables, tokens=tokens), input_of(2, 13)
    assert layer.mechanism.table.shape == (2, 7, 2)
    assert layer.mechanism.table[1, 5].tolist() == [-1, -1]
    real = real_tokens(13, 10, n=13)
    chosen = torch.zeros(2, 13, dtype=torch.bool)
    chosen[0, 4] = chosen[1, 9] = True
    own = [{4}, {9}] if tokens == "extra" else [ends(13, BLOCK), ends(10, BLOCK)]
    expected = naive(layer, x, table=tables, real=real, tokens=own)
    given = {"global_tokens": chosen} if tokens == "extra" else {}
    check(layer, x, expected, real, key_padding=real, **given)
    again = BigBird(**layer.mechanism.settings)
    assert torch.equal(again.table, layer.mechanism.table)
    assert again.pattern(Setting(global_tokens=chosen if given else None)).dense(13).shape[1] == 2


def test_a_draw_for_other_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="num_heads=3"):
        layer_of(table=[TABLE] * 3)


def test_wider_windows() -> None:
    layer, x = layer_of(window=5, global_blocks=0), input_of(1, 13)
    everything = torch.ones(1, 13).bool()
    expected = naive(layer, x, table=TABLE, real=everything, tokens=[set()], side=2)
    check(layer, x, expected, everything)


def test_draws_as_the_preset_does() -> None:
    made = BigBird(40, block=4, drawn=2, seed=7)
    for n in (40, 23):
        assert torch.equal(made.pattern().dense(n), bigbird(40, block=4, drawn=2, seed=7).dense(n))
    assert not torch.equal(made.table, BigBird(40, block=4, drawn=2, seed=8).table)


def test_draws_three_blocks_or_none() -> None:
    assert BigBird(640).table.shape == (10, 3)
    assert BigBird(640, tokens="extra").table is None
    assert BigBird(640, tokens="extra", drawn=1).table.shape == (10, 1)
    assert BigBird(640, drawn=0).table is None


def test_too_few_blocks_leave_places_empty() -> None:
    made = BigBird(5 * BLOCK, block=BLOCK, drawn=3)
    assert (made.table == -1).any()
    q = torch.randn(1, H, 10, 3)
    assert made(q, q, q).isfinite().all()


def test_a_given_draw_may_have_rows_of_any_width() -> None:
    made = BigBird(3 * BLOCK, block=BLOCK, table=[[2], [], [0, 1]])
    assert made.table.tolist() == [[2, -1], [-1, -1], [0, 1]]


def test_the_same_in_training_and_evaluation() -> None:
    layer, x = layer_of(), input_of(2, 14)
    assert torch.equal(layer.train()(x), layer.eval()(x))


@pytest.mark.parametrize("tokens", ["internal", "extra"])
def test_padding_changes_no_real_token(tokens: Any) -> None:
    layer = layer_of(tokens=tokens).float()
    x = torch.randn(2, 9, E)
    marks = torch.arange(14)[None].expand(2, 14) == 3
    call = {} if tokens == "internal" else {"global_tokens": marks[:, :9]}
    alone = layer(x, **call)
    more = torch.cat([x, 100 * torch.randn(2, 5, E)], dim=1)
    call = {} if tokens == "internal" else {"global_tokens": marks}
    padded = layer(more, key_padding=real_tokens(9, 9, n=14), **call)
    torch.testing.assert_close(padded[:, :9], alone, rtol=0, atol=1e-6)


def test_samples_do_not_know_each_other() -> None:
    layer, x = layer_of(), input_of(3, 12)
    real = real_tokens(12, 7, 2, n=12)
    together = layer(x, key_padding=real)
    for b, length in enumerate((12, 7, 2)):
        alone = layer(x[b : b + 1, :length])
        torch.testing.assert_close(together[b : b + 1, :length], alone, rtol=1e-12, atol=1e-12)


def test_the_draw_is_in_the_state_dict() -> None:
    one, other = layer_of(table=None, seed=1, drawn=2), layer_of(table=None, seed=2, drawn=2)
    assert one.state_dict()["mechanism.table"].dtype == torch.int64
    x = input_of(1, 14)
    for assign in (False, True):
        fresh = deepcopy(other)
        weights = {**fresh.state_dict(), "mechanism.table": one.state_dict()["mechanism.table"]}
        expected = deepcopy(one)
        expected.load_state_dict({**weights})
        assert not torch.equal(fresh(x), expected(x))
        fresh.load_state_dict(weights, assign=assign)
        assert torch.equal(fresh(x), expected(x))
        assert torch.equal(fresh.mechanism.table, one.mechanism.table)


def test_a_draw_for_another_length_does_not_load() -> None:
    with pytest.raises(RuntimeError, match="size mismatch for table"):
        BigBird(640).load_state_dict(BigBird(1280).state_dict())


def test_longer_inputs_raise() -> None:
    for layer in (layer_of(), layer_of(table=None, drawn=0)):
        with pytest.raises(ValueError, match=r"length is 14, but the input has 15 .*length=15"):
            layer(input_of(1, 15))


def test_global_tokens_come_from_one_place() -> None:
    marks = torch.zeros(1, 8).bool()
    with pytest.raises(ValueError, match="make it with tokens='extra'"):
        layer_of()(input_of(1, 8), global_tokens=marks)
    with pytest.raises(ValueError, match="every call needs global_tokens"):
        layer_of(tokens="extra")(input_of(1, 8))


def test_is_not_for_decoders() -> None:
    assert not BigBird(64).causal and BigBird(64).remembers is None


def test_dropout_only_in_training() -> None:
    made, q = BigBird(14, block=BLOCK).eval(), torch.randn(1, H, 14, 3)
    assert torch.equal(made(q, q, q, Setting(dropout=0.5)), made(q, q, q))
    assert not torch.allclose(made.train()(q, q, q, Setting(dropout=0.5)), made(q, q, q))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"length": 0}, ValueError, "BigBird: length .*0"),
        ({"length": 9.5}, TypeError, "BigBird: length .*9.5"),
        ({"length": 64, "block": 0}, ValueError, "BigBird: block .*0"),
        ({"length": 64, "window": 2}, ValueError, "BigBird: window must be an odd .*2"),
        ({"length": 64, "drawn": -1}, ValueError, "BigBird: drawn .*-1"),
        ({"length": 64, "global_blocks": -1}, ValueError, "BigBird: global_blocks .*-1"),
        ({"length": 64, "tokens": "etc"}, ValueError, "BigBird: tokens .*etc"),
        (
            {"length": 64, "tokens": "extra", "global_blocks": 1},
            ValueError,
            "BigBird: global_blocks are of tokens='internal'",
        ),
        ({"length": 64, "block": 8, "table": TABLE}, ValueError, "table must .* each of the 8"),
        (
            {"length": 14, "block": 2, "table": TABLE, "drawn": 3},
            ValueError,
            "BigBird: table has 2 .*drawn is 3",
        ),
        ({"length": 14, "block": 2, "table": [[7]] * 7}, ValueError, "blocks below 7, .*got 7"),
        ({"length": 14, "block": 2, "table": [[1.5]] * 7}, TypeError, "table entries .*1.5"),
    ],
    ids=str,
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BigBird(**options)


def test_on_a_device_without_memory() -> None:
    with torch.device("meta"):
        made = BigBird(64, block=4)
    assert made.table is not None and made.table.is_meta
    assert made._unpadded == BigBird(64, block=4)._unpadded
