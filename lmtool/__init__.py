"""lmtool: train, evaluate, mix and compare the language models that came before Transformers."""

__version__ = "0.4.0"
