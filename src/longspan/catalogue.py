"""What in the documentation is written by the code: the page about mechanisms, whose facts were
found by running them, and tables, which are copied from the files that the records gave.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .nn import Attention, BigBird, FullAttention, LearnedWindow, Mechanism, Setting, SlidingWindow
from .patterns import Causal, Strided, Window
from .patterns.drawing import draw_panel, new_figure, save_figure
from .writing import write_text

__all__ = ["EXAMPLES", "facts_of", "page", "save_pictures", "with_tables"]

EMBED, HEADS, LENGTH, SHOWN = 32, 2, 192, 32


class Example(NamedTuple):
    """One way to make a mechanism."""

    code: str
    make: Callable[[], Mechanism]
    causal: Callable[[], Mechanism]


EXAMPLES = (
    Example(
        "FullAttention()",
        lambda: FullAttention(),
        lambda: FullAttention(causal=True),
    ),
    Example(
        "Attention(Window(4, 4) | Strided(8))",
        lambda: Attention(Window(4, 4) | Strided(8)),
        lambda: Attention(Causal() & (Window(4, 0) | Strided(8))),
    ),
    Example(
        "SlidingWindow(32, 2, left=4, dilation=[1, 2])",
        lambda: SlidingWindow(EMBED, HEADS, left=4, dilation=[1, 2]),
        lambda: SlidingWindow(EMBED, HEADS, left=4, causal=True),
    ),
    Example(
        "BigBird(192, block=4, drawn=1)",
        lambda: BigBird(LENGTH, block=4, drawn=1),
        lambda: BigBird(LENGTH, block=4, drawn=1),
    ),
    Example(
        "LearnedWindow(32, 2, mean_reach=4, max_reach=12)",
        lambda: _learned(causal=False),
        lambda: _learned(causal=True),
    ),
)


def _learned(*, causal: bool) -> LearnedWindow:
    made = LearnedWindow(EMBED, HEADS, mean_reach=4, max_reach=12, causal=causal)
    with torch.no_grad():
        made.U_d.normal_(std=1.5)
    return made


def _inputs(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(1, n, EMBED, generator=source)
    heads = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    return x, heads, heads.roll(1, 2), heads.roll(2, 2)


def facts_of(example: Example) -> dict[str, str]:
    """What is true of a mechanism, found by running it."""
    torch.manual_seed(0)
    mechanism = example.make().eval()
    x, q, k, v = _inputs(LENGTH)
    explanation = mechanism.explain(q, k, v, Setting(x))
    share = explanation.pairs / explanation.all_pairs
    backends = [name for name, why in explanation.refusals.items() if not _matters(why)]
    found = {
        "pairs of 192 tokens": f"{share:.1%}",
        "causal": _causal(example),
        "a decoder keeps": _kept(example),
        "padding": _padding(mechanism),
        "global tokens": _global_tokens(mechanism),
        "learns": ", ".join(f"`{name}`" for name, _ in mechanism.named_parameters()) or "nothing",
        "gradients": _gradients(mechanism),
        "backends": ", ".join(f"`{name}`" for name in backends),
        "file": f"`nn/{Path(inspect.getfile(type(mechanism))).name}`",
    }
    if isinstance(mechanism, FullAttention):
        found["backends"] = "PyTorch's own kernels; else " + found["backends"]
    return found


def _matters(reasons: list[str]) -> list[str]:
    """Refusals that are about the call, not about where this was run."""
    return [why for why in reasons if "CUDA device" not in why and "not installed" not in why]


def _causal(example: Example) -> str:
    causal = example.causal().eval()
    if not causal.causal:
        return "no"
    x, q, k, _v = _inputs(24)
    weights = causal(q, k, _each(24), Setting(x))
    assert not weights.triu(1).any(), "a causal mechanism looked ahead"
    return "yes" if example.make().causal else "if asked for"


def _kept(example: Example) -> str:
    causal = example.causal()
    if not causal.causal:
        return "–"
    return "all keys" if causal.remembers is None else f"the last {causal.remembers} keys"


def _each(n: int) -> Tensor:
    """Values of which every one is another direction: the output is the weights themselves."""
    return torch.eye(n).expand(1, HEADS, n, n)


def _padding(mechanism: Mechanism) -> str:
    x, q, k, v = _inputs(40)
    real = torch.zeros(1, 40, dtype=torch.bool)
    real[:, :29] = True
    whole = mechanism(q, k, v, Setting(x, real))[:, :, :29]
    alone = mechanism(q[:, :, :29], k[:, :, :29], v[:, :, :29], Setting(x[:, :29]))
    return "changes nothing" if torch.allclose(whole, alone, atol=1e-5) else "changes outputs"


def _global_tokens(mechanism: Mechanism) -> str:
    x, q, k, v = _inputs(LENGTH)
    tokens = torch.zeros(1, LENGTH, dtype=torch.bool)
    tokens[:, 0] = True
    try:
        found = mechanism(q, k, v, Setting(x, None, tokens))
    except ValueError:
        return "of the pattern alone" if isinstance(mechanism, Attention) else "at both ends"
    if torch.equal(found, mechanism(q, k, v, Setting(x))):
        return "change nothing"
    return "with the call, for each sample its own"


def _gradients(mechanism: Mechanism) -> str:
    x, q, k, v = _inputs(LENGTH)
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    tokens = torch.zeros(1, LENGTH, dtype=torch.bool)
    tokens[:, 0] = True
    setting = Setting(x, None, tokens if isinstance(mechanism, SlidingWindow) else None)
    mechanism(*leaves, setting).square().sum().backward()
    assert all(leaf.grad is not None for leaf in leaves)
    missing = [name for name, own in mechanism.named_parameters() if own.grad is None]
    return "q, k, v and all it learns" if not missing else f"not to {', '.join(missing)}"


def page() -> str:
    """`docs/mechanisms.md`."""
    parts = [HEAD]
    for example in EXAMPLES:
        kind = type(example.make())
        about = inspect.cleandoc(kind.__doc__ or "")
        parts.append(f"## {kind.__name__}\n\n{_summary(about)}\n")
        parts.append(f"![{kind.__name__}](pictures/mechanism-{kind.__name__.lower()}.svg)\n")
        parts.append(f"The picture is `{example.code}` on 32 tokens, one colour for each head.\n")
        rows = "\n".join(f"| {name} | {value} |" for name, value in facts_of(example).items())
        parts.append(f"| | |\n|---|---|\n{rows}\n")
        paper = re.search(r"\(arXiv [\d.]+\)|\(EMNLP\)", about)
        reference = re.search(r"Reference:\n((?:    .*\n?)+)", about)
        if reference:
            parts.append(f"Paper: {' '.join(textwrap.dedent(reference.group(1)).split())}\n")
        elif paper:
            parts.append(f"Paper: {paper.group(0)[1:-1]}\n")
    return "\n".join(parts)


HEAD = """\
<!-- Written from the code: `python -m longspan.catalogue docs` writes it again. -->

# Mechanisms

A mechanism is a module. In each call it says which pairs of tokens exist and how much they count;
`longspan.attention` computes the rest. `nn.MultiheadAttention` puts projections around a mechanism,
and `longspan.models` a transformer. The facts in the tables were found by running each of them.

A learned window's reach network wants a larger learning rate than the model:
[Training](training.md#the-learning-rate-of-the-reach) shows how to give it one.
"""


def _summary(about: str) -> str:
    """What a docstring says before its arguments, with formulas as code."""
    text = re.split(r"\n(?:Args|Attributes|Reference|Raises|Returns):\n", about)[0]
    found, formula = [], []
    for line in [*text.split("\n"), ""]:
        if line.startswith("    "):
            formula.append(line[4:])
        elif formula and not line:
            found.append("```text\n" + "\n".join(formula) + "\n```\n")
            formula = []
        else:
            found.append(line)
    return "\n".join(found).strip()


def save_pictures(folder: str | Path) -> None:
    """Draws what each mechanism looks at, one picture each."""
    for example in EXAMPLES:
        torch.manual_seed(0)
        mechanism = example.make().eval()
        x, q, k, _ = _inputs(SHOWN)
        weights = mechanism(q * 0.3, k, _each(SHOWN), Setting(x))[0].detach()
        figure = new_figure(3.2, 3.2)
        draw_panel(figure.add_axes((0.02, 0.02, 0.96, 0.96)), weights / weights.amax(-1, True))
        name = type(mechanism).__name__.lower()
        save_figure(figure, Path(folder) / f"mechanism-{name}.svg")


TABLE = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def with_tables(text: str, root: Path) -> str:
    """A page with its tables as they are in the files below `root` that its comments name. Sites
    that show Markdown as it is, such as GitHub's, include nothing.
    """

    def filled(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        return f"{begin}\n{(root / name).read_text(encoding='utf-8').strip()}\n\n{end}"

    return TABLE.sub(filled, text)


if __name__ == "__main__":
    import sys

    docs = Path(sys.argv[1])
    save_pictures(docs / "pictures")
    write_text(docs / "mechanisms.md", page())
    for path in docs.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        filled = with_tables(text, docs.parent)
        if filled != text:
            write_text(path, filled)
