"""What a reader is told beside the figures: what is seen, and how to read it."""

from __future__ import annotations

__all__ = [
    "COST",
    "DOCUMENT",
    "FINAL",
    "LEARNED",
    "LEARNING",
    "MAP",
    "PATTERNS",
    "REACH",
    "RESULTS",
    "WORDS",
]

WORDS = (
    "Runs that share everything but the seed of their random numbers are one setup. A model's "
    "tokens look at one another in pairs; the reach of a token is how many tokens to each side it "
    "looks. Fewer pairs are less work."
)
RESULTS = (
    "A row is a setup; numbers are means over its seeds, and ± is the sample deviation (for time "
    "and the like as a share of the mean). Bold and underlined is a best value that leads every "
    "other by more than both deviations together. Where the spread of the seeds does not allow to "
    "say so, or there is only one seed, nothing is bold. Pairs are those that attention computes "
    "for an example, without padding."
)
COST = (
    "Each point is a setup; the further left, the cheaper. Bars reach one deviation of the seeds "
    "to each side; a setup of one seed has none."
)
LEARNING = (
    "A line is a run; runs of one setup have one colour. Point at a chart, or use the arrow keys "
    "on it, to read values. Of long curves the lowest and the highest record of each stretch are "
    "shown."
)
REACH = (
    "How far the tokens of each layer look while the model learns. The strong line is the mean "
    "over tokens and heads, thin lines are the means of single heads; half of all tokens lie in "
    "the strong band, all of them in the pale one."
)
FINAL = (
    "How many of a document's tokens look how far when training is over, all heads of a layer "
    "together. A single bar is a window of one width; a wide heap is a layer whose tokens differ."
)
LEARNED = (
    "Which tokens look far, over many examples, without those that are global. The stronger a "
    "cell's colour, the larger its value among all of the table. Shares of the variance say what "
    "one would know of a token's reach (its logarithm) by knowing only its head, or only which "
    "token it is, and so on; they are not parts of one whole, but for layer, head, and token in "
    "its place. What chance alone would explain is taken off."
)
DOCUMENT = (
    "A real document. The stronger a token's colour, the further it looks. Point at a token, tap "
    "it, or press the arrow keys to see what it sees: blue is its interval, and the stronger the "
    "blue, the more of the chosen heads see there. Choose one layer or head to look at it alone."
)
MAP = (
    "The same as a map: a row for each token that looks, a column for each that is seen, both in "
    "the order of the text. The stronger, the more heads see it. Crossing lines are global tokens. "
    "Point at a row, or tap it, to find its token in the text."
)
PATTERNS = (
    "What the tokens of that document see, in every layer: a row for each token that looks, from "
    "the top; a column for each that is seen, from the left. A band along the diagonal is a "
    "window. Where more heads see, it is stronger; crossing lines are global tokens. Drawn from "
    "the first to the last token seen: gaps between them are not shown."
)
