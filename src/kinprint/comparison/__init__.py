"""The pipeline of one comparison: select, read, measure, summarise, judge, report."""
