"""Keep a model in some hundred kilobytes: what exact tests need, and what no change of order or basis alters."""
