"""One little model, and a maker for each format that writes it: what the contract of the formats is tested on."""
