"""A learned window against a fixed one, in about three minutes: `python examples/learned_window.py`

Every token of one causal layer weighs its keys by a bell that ends at its reach. In the fixed model
all reach equally far; in the learned one only on average: reach = c·exp(z), z = U_dᵀ tanh(W_p q).
"""

from importlib.resources import files

import torch
import typer
from rich import print
from rich.progress import track
from rich.text import Text
from torch import Tensor, nn

import longspan as ls
from longspan.weights import Bell, DistanceBias, reach_of, variance_of

LENGTH, WIDTH, HEADS, SIZE, THRESHOLD, MEAN = 128, 64, 4, 16, 0.5, 8
COLOURS = {0: "#5977e3", 2: "#9ebeff", 4: "#d5dbe6", 8: "#f7bca1", 16: "#ee8468", 32: "#d0473d"}
BYTES = [chr(byte) if 32 <= byte < 127 or byte == 10 else "·" for byte in range(256)]
NOTES = [*"abcdefghijklmnop", *(f"{key}{digit}" for key in "ABCDEFGH" for digit in range(10))]
NOTES += [*(f"{key}?" for key in "ABCDEFGH"), *"0123456789"]


class Model(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.embed, self.qkv = nn.Embedding(tokens, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.mix, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, tokens))
        self.bias = nn.Parameter(torch.zeros(HEADS, 33))  # for each distance up to 32, and beyond
        self.w_p, self.u_d = nn.Linear(SIZE, SIZE, False), nn.Parameter(torch.zeros(HEADS, SIZE, 1))
        self.register_buffer("c", torch.tensor(float(MEAN)))  # where every reach starts, as u_d = 0

    def forward(self, x: Tensor, cut: float | None = THRESHOLD) -> tuple[Tensor, Tensor]:
        h = self.embed(x)
        q, k, v = self.qkv(h).unflatten(2, (3, HEADS, SIZE)).permute(2, 0, 3, 1, 4)  # (B, H, N, D)
        share = ((torch.tanh(self.w_p(q)) @ self.u_d).squeeze(-1) / 8).exp()  # /8: learn it slowly
        share = share * (share.mean().detach() / share.mean())  # ×1, but a gain takes from others
        variance = variance_of((self.c * share).clamp(max=LENGTH), THRESHOLD)
        reach = reach_of(variance, THRESHOLD).float()  # (B, H, N)
        if self.training:  # c follows the texts so far: to meet the mean in each would look ahead
            self.c = self.c * (MEAN / reach.mean()) ** 0.1
        weight = [Bell(variance, threshold=cut, max_reach=LENGTH), DistanceBias(self.bias, right=0)]
        y = ls.attention(q, k, v, ls.patterns.Causal(), weight=weight)
        h = h + self.mix(y.transpose(1, 2).flatten(2))
        return self.out(h + self.feed(self.norm(h))), reach


def recall(rows: int) -> tuple[Tensor, Tensor]:
    """Most tokens repeat the one before them; `A?` recalls the 7 of `A7`, which may be far back."""
    key, digit = torch.arange(8).expand(rows, 8), torch.randint(10, (rows, 8))
    places = torch.rand(rows, LENGTH).argsort(1)[:, :16].view(rows, 8, 2).sort(2).values
    x = torch.randint(16, (rows, LENGTH)).scatter(1, places[..., 0], 16 + 10 * key + digit)
    x = x.scatter(1, places[..., 1], 96 + key)
    y = nn.functional.pad(x, (1, -1), value=-100).where(torch.rand(x.shape) < 1 / 16, -100)
    return x, y.scatter(1, places[..., 1], 104 + digit)


def compare(task: str, names: list[str], x: Tensor, y: Tensor, stride: int, steps: int) -> None:
    end = len(x) * 9 // 10  # training takes rows before it, the test every stride-th after it
    held, answer = x[end + LENGTH :: stride], y[end + LENGTH :: stride]
    asked = answer >= (104 if task == "recall" else 0)
    for kind in ("fixed", "learned"):
        torch.manual_seed(0)
        model = Model(len(names))
        model.u_d.requires_grad_(kind == "learned")
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 7e-3, steps, pct_start=0.1)
        for step in track(range(steps), f"{task}, {kind} reach", transient=True):
            rows = torch.randint(end, (16,))  # nothing is learnt from beyond a cut: soft at first
            logits, _ = model(x[rows], cut=None if step < steps // 5 else THRESHOLD)
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits.flatten(0, 1), y[rows].flatten()).backward()
            optimizer.step()
            schedule.step()
        logits, reach = torch.no_grad()(model.eval())(held)
        right = (logits.argmax(-1) == answer)[asked].float().mean()
        bits = nn.functional.cross_entropy(logits[asked], answer[asked]) / torch.tensor(2).log()
        print(f"{task}, {kind} reach: {right:.1%} right, {bits:.3f} bits, mean {reach.mean():.2f}")
    print("reach", *(f"[black on {colour}] {edge}+ [/]" for edge, colour in COLOURS.items()))
    text = Text()
    for token, far in zip(held[:4].flatten(), reach.mean(1)[:4].flatten(), strict=True):
        text.append(names[token], f"black on {COLOURS[max(e for e in COLOURS if e <= far)]}")
    print(text)


def main(steps: int = 2000) -> None:
    torch.manual_seed(0)
    text = torch.tensor(list((files("longspan") / "data" / "enwik8_slice.txt").read_bytes()))
    piece = text.unfold(0, LENGTH + 1, 1)
    compare("recall", NOTES, *recall(20_000), stride=8, steps=steps)
    compare("enwik8", BYTES, piece[:, :-1], piece[:, 1:], stride=LENGTH, steps=steps)


if __name__ == "__main__":
    typer.run(main)
