"""Hugging Face models with longspan under them."""
