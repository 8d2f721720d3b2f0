"""A zoo of small, really trained language models whose relations are known."""
