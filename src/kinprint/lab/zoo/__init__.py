"""Build and open a zoo: small, really trained language models whose relations are known."""
