"""Give a translatable word for each identifier that sentences name: tests, parts, states, classes, controls, kinds of edits."""

from kinprint.text import Text, verbatim

# fmt: off
_TESTS = (
    Text("norm_joint"), Text("matrix_correlation"), Text("fixed_points"), Text("fixed_points_aligned"),
    Text("head_fixed_points"), Text("gram_fixed_points"), Text("token_rows"), Text("layer_map"), Text("expert_map"),
    Text("neuron_match"), Text("neuron_match_aligned"), Text("neuron_match_rotated"),
    Text("dimension_fixed_points"), Text("sign_flips"),
)
_PARTS = (
    Text("embedding"), Text("norms"), Text("attention"), Text("attention output"), Text("mlp"), Text("mlp output"),
    Text("experts"), Text("router"), Text("head"),
)
_STATES = (
    Text("shared"), Text("partly shared"), Text("not shared"), Text("not tested"),
    Text("passed"), Text("failed"), Text("not run"),
    Text("identical"), Text("related"), Text("derived"), Text("no evidence"),  # classes that controls are held to
)
_CONTROLS = (Text("self"), Text("shuffled self"), Text("rotated self"), Text("rotated shuffled self"))
_MAPS = (
    Text("identity"), Text("subsequence"), Text("monotone with repeats"), Text("blocks"), Text("shuffled"), Text("partial"),
)
_EDITS = (
    Text("cast"), Text("scaled"), Text("rescaled"), Text("quantised"), Text("pruned"), Text("truncated"), Text("low rank"),
    Text("noise"),
    Text("merged or reweighted"), Text("changed"), Text("unknown"),
)
# fmt: on
_WORDS = {str(word): word for word in (*_TESTS, *_PARTS, *_STATES, *_CONTROLS, *_MAPS, *_EDITS)}
_WORDS["no_evidence"] = _WORDS["no evidence"]

_PHRASES = {
    "embedding": Text("token embeddings"),
    "norms": Text("norm weights"),
    "attention output": Text("attention output matrices"),
    "mlp": Text("MLP matrices"),
    "mlp output": Text("MLP output matrices"),
    "router": Text("routers"),
    "head": Text("the output matrix (lm_head)"),
}


def part_phrase(identifier: str) -> Text:
    """Return what a part of a model is called in a sentence."""
    return _PHRASES.get(identifier) or word(identifier)


def word(identifier: str) -> Text:
    """Return an identifier as a word that languages can say; a name that is none of the engine's stays as it is."""
    return _WORDS.get(identifier) or verbatim(identifier)
