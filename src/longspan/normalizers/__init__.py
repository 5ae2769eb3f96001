"""What turns scores into probabilities: softmax, sparsemax, α-entmax."""

from .family import Entmax, Normalizer, Softmax, Sparsemax
from .functions import entmax, entmax15, sparsemax

__all__ = ["Entmax", "Normalizer", "Softmax", "Sparsemax", "entmax", "entmax15", "sparsemax"]
