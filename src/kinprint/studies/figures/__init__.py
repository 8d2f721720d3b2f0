"""Figure functions: they take results and return a matplotlib figure. Only this package imports matplotlib."""
