"""Alignment: find which layer, neuron or residual dimension of one model is which of another's, before anything is tested.

A derived model may have been reordered, resized or rotated. Each map found here comes with the evidence for it, beside a null
wherever one exists. Pure numerics: arrays in, maps out.
"""
