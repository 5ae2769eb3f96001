"""The mathematics that softmax, sparsemax and α-entmax share.

With ε = α − 1, let e_α(y) = [1 + ε·y]₊^(1/ε), which is exp(y) at α = 1. All three normalisers are

    p_j = e_α(s_j − T),   T the one number for which Σ_j p_j = 1

(T is the log-sum-exp for α = 1, and τ + 1 for sparsemax with its usual threshold τ). Written like
this nothing is singular at α → 1: neither p, nor the search for T, nor the gradient with respect to
α. `alpha` is a float, or a tensor that broadcasts with the scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..fixed_order import row_sum

__all__ = ["above", "alpha_gradient", "exponential", "score_gradient", "threshold"]

Alpha = float | Tensor

# Below this ε the formulas give their limit to the last bit of float64, and 1/ε is still finite in
# float32.
SMALLEST_EPSILON = 1e-12


def exponential(y: Tensor, alpha: Alpha) -> Tensor:
    """e_α(y), elementwise; −inf gives 0."""
    if isinstance(alpha, float):
        if alpha == 1.0:
            return y.exp()
        if alpha == 1.5:
            return (1 + y / 2).clamp(min=0).square()
        if alpha == 2.0:
            return (1 + y).clamp(min=0)
    epsilon = _epsilon(alpha, y)
    inside = 1 + epsilon * y > 0
    growth = torch.log1p(torch.where(inside, epsilon * y, 0))
    return torch.where(inside | y.isnan(), (growth / epsilon).exp(), 0) + 0 * _nan_only(y)


def threshold(scores: Tensor, alpha: Alpha) -> Tensor:
    """T for every row of `scores` (last dim; −inf is "no pair"), float64; −inf for a row without
    pairs.

    Exact, by sorting, for α = 1.5 and 2; by a safeguarded Newton search for any other.
    """
    top = scores.amax(-1, keepdim=True)
    empty = top == -math.inf
    x = scores - torch.where(empty, 0, top)
    if isinstance(alpha, float) and alpha == 1.0:
        t = row_sum(x.exp(), keepdim=True).log()
    elif isinstance(alpha, float) and alpha == 2.0:
        t = _newton_step(x, _sparsemax_by_sorting(x), alpha)[0]
    elif isinstance(alpha, float) and alpha == 1.5:
        t = _newton_step(x, _entmax15_by_sorting(x), alpha)[0]
    else:
        t = _search(x, alpha)
    return torch.where(empty, -math.inf, top.double() + t.double()).squeeze(-1)


def above(scores: Tensor, limit: Tensor) -> Tensor:
    """s − T of every row, in the dtype of the scores; s itself in rows without pairs.

    T is as large as the scores, so rounding it to float32 would cost more digits than the
    difference has. At α near 2 that decides which pairs have a gradient at all.
    """
    limit = torch.where(limit == -math.inf, 0, limit)[..., None]
    rounded = limit.to(scores.dtype)
    return scores - rounded - (limit - rounded).to(scores.dtype)


def score_gradient(p: Tensor, g: Tensor, alpha: Alpha) -> Tensor:
    """The gradient with respect to the scores, from that with respect to p: s·(g − ⟨s, g⟩/Σs) with
    s = p^(2−α).
    """
    s = _slope(p, alpha)
    return s * (g - _mean_under(s, g))


def alpha_gradient(p: Tensor, g: Tensor, alpha: Alpha) -> Tensor:
    """The gradient with respect to α of every row, from that with respect to p.

    With ℓ = ln p and s = p^(2−α), dp/dα = w − s·Σw/Σs, where w = ∂e_α/∂α = −p·ℓ²·ψ(−ε·ℓ) and
    ψ(a) = (eᵃ − 1 − a)/a², which is 1/2 at 0: so the limit at α → 1 is −½·p·(ℓ² − Σ p·ℓ²).

    Reference:
        Correia, Niculae, Martins 2019, "Adaptively Sparse Transformers" (arXiv 1909.00015),
        proposition 1, which is this expression written with 1/ε² and 1/ε; that form loses all
        digits near α = 1.
    """
    log_p = torch.where(p > 0, p, 1).log()
    a = -_epsilon(alpha, p) * log_p
    series = 0.5 + a / 6 * (1 + a / 4 * (1 + a / 5 * (1 + a / 6 * (1 + a / 7))))
    far = a > 0.3
    safe = torch.where(far, a, 1)
    psi = torch.where(far, (torch.expm1(safe) - safe) / safe.square(), series)
    w = -p * log_p.square() * psi
    return row_sum(w * (g - _mean_under(_slope(p, alpha), g)))


def _epsilon(alpha: Alpha, like: Tensor) -> Tensor:
    return (torch.as_tensor(alpha, dtype=like.dtype, device=like.device) - 1).clamp(
        min=SMALLEST_EPSILON
    )


def _nan_only(y: Tensor) -> Tensor:
    return torch.where(y.isnan(), y, 0)


def _slope(p: Tensor, alpha: Alpha) -> Tensor:
    """p^(2−α) on the support, 0 elsewhere: how fast e_α grows where it has the value p."""
    if isinstance(alpha, float):
        if alpha == 1.0:
            return p
        if alpha == 1.5:
            return p.sqrt()
        if alpha == 2.0:
            return torch.where(p.isnan(), p, (p > 0).to(p.dtype))
    power = 2 - torch.as_tensor(alpha, dtype=p.dtype, device=p.device)
    return torch.where(p == 0, 0, p.pow(power))


def _mean_under(s: Tensor, g: Tensor) -> Tensor:
    total = row_sum(s, keepdim=True)
    return row_sum(s * g, keepdim=True) / torch.where(total == 0, 1, total)


def _sparsemax_by_sorting(x: Tensor) -> Tensor:
    """t for α = 2 (Martins, Astudillo 2016, arXiv 1602.02068, algorithm 1); rows of x have maximum
    0.
    """
    z = x.clamp(min=-2).sort(-1, descending=True).values
    rank = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    total = z.cumsum(-1)
    support = (1 + rank * z > total).sum(-1, keepdim=True).clamp(min=1)
    return 1 + (total.gather(-1, support - 1) - 1) / support


def _entmax15_by_sorting(x: Tensor) -> Tensor:
    """t for α = 1.5 (Peters, Niculae, Martins 2019, arXiv 1905.05702, algorithm 2); rows of x have
    maximum 0.
    """
    z = (x / 2).clamp(min=-2).sort(-1, descending=True).values
    rank = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    mean = z.cumsum(-1) / rank
    spread = rank * (z.square().cumsum(-1) / rank - mean.square())
    tau = mean - ((1 - spread) / rank).clamp(min=0).sqrt()
    support = (tau <= z).sum(-1, keepdim=True).clamp(min=1)
    return 2 * (1 + tau.gather(-1, support - 1))


def _newton_step(x: Tensor, t: Tensor, alpha: Alpha) -> tuple[Tensor, Tensor]:
    """One step on φ(t) = (S^ε − 1)/ε with S = Σ e_α(x − t), and φ itself.

    φ is convex and falls, and is a straight line at α = 1 and, while the support stays, at α = 2:
    few steps are needed, and none ever lands right of the root.
    """
    p = exponential(x - t, alpha)
    total = row_sum(p, keepdim=True)
    slope = row_sum(_slope(p, alpha), keepdim=True)
    epsilon = _epsilon(alpha, x)
    log_total = torch.where(total > 0, total, 1).log()
    phi = torch.where(total > 0, torch.expm1(epsilon * log_total) / epsilon, -1 / epsilon)
    step = phi * ((1 - epsilon) * log_total).exp() / torch.where(slope > 0, slope, 1)
    return torch.where(slope > 0, t + step, t), phi


def _search(x: Tensor, alpha: Alpha) -> Tensor:
    """t for any α: Newton from the left; where that does not halve the bracket, its middle is tried
    next.
    """
    epsilon = _epsilon(alpha, x)
    count = x.shape[-1]
    low = torch.zeros_like(x[..., :1])
    high = (low - torch.expm1(-epsilon * math.log(max(count, 1))) / epsilon).clone()
    point, width = low, high - low
    tolerance = 4 * torch.finfo(x.dtype).eps
    steps = 120 if x.dtype == torch.float64 else 48
    for _ in range(steps):
        newton, phi = _newton_step(x, point, alpha)
        high = torch.where(phi < 0, torch.minimum(high, point), high)
        low = torch.maximum(low, torch.minimum(newton, high))
        now = high - low
        done = (newton - point).abs() <= tolerance * (1 + point.abs())
        point = torch.where(done | (now <= width / 2), low, low + now / 2)
        width = now
        # A GPU would have to wait for the answer; there all steps are taken.
        if x.device.type == "cpu" and bool((done | now.isnan()).all()):
            break
    return low
