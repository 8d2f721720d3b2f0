"""Words for the engine's identifiers, where sentences name them: tests, parts, states, classes, controls, kinds of edits."""

from __future__ import annotations

from kinprint.text import Text, verbatim

_WORDS = {
    str(word).replace("no evidence", "no_evidence"): word
    for word in (
        # tests
        Text("norm_joint"),
        Text("matrix_correlation"),
        Text("fixed_points"),
        Text("fixed_points_aligned"),
        Text("head_fixed_points"),
        Text("gram_fixed_points"),
        Text("token_rows"),
        Text("layer_map"),
        Text("expert_map"),
        Text("neuron_match"),
        Text("neuron_match_aligned"),
        Text("neuron_match_rotated"),
        # parts
        Text("embedding"),
        Text("norms"),
        Text("attention"),
        Text("attention output"),
        Text("mlp"),
        Text("mlp output"),
        Text("experts"),
        Text("router"),
        Text("head"),
        # states
        Text("shared"),
        Text("partly shared"),
        Text("not shared"),
        Text("not tested"),
        Text("passed"),
        Text("failed"),
        Text("not run"),
        # classes that controls are held to
        Text("identical"),
        Text("related"),
        Text("derived"),
        Text("no evidence"),
        # controls
        Text("self"),
        Text("shuffled self"),
        Text("rotated self"),
        Text("rotated shuffled self"),
        # kinds of layer maps
        Text("identity"),
        Text("subsequence"),
        Text("monotone with repeats"),
        Text("blocks"),
        Text("shuffled"),
        Text("partial"),
        # edits
        Text("cast"),
        Text("scaled"),
        Text("quantised"),
        Text("pruned"),
        Text("low rank"),
        Text("noise"),
        Text("merged or reweighted"),
        Text("changed"),
        Text("unknown"),
    )
}


def word(identifier: str) -> Text:
    """Return an identifier as a word that languages can say; a name that is none of the engine's stays as it is."""
    return _WORDS.get(identifier) or verbatim(identifier)
