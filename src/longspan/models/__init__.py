"""One transformer, its heads, and writing with it."""

from .config import Config
from .generation import Sampling
from .heads import Classification, LanguageModelling, MaskedTokens, SpanAnswers, Tagging
from .language_model import LanguageModel, Translator
from .saving import load, save
from .transformer import Decoder, Encoder, EncoderDecoder

__all__ = [
    "Classification",
    "Config",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "LanguageModel",
    "LanguageModelling",
    "MaskedTokens",
    "Sampling",
    "SpanAnswers",
    "Tagging",
    "Translator",
    "load",
    "save",
]
