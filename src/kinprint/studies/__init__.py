"""Studies: every experiment of the published analyses, on any models; published figures are checked, not repeated."""
