"""Compare two models: select, read, measure, summarise, judge, report."""
