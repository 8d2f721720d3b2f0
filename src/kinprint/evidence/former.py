"""Sentences that are no longer said, of reports that were stored before: so that their translations stay."""

from kinprint.text import Text

SENTENCES = (
    Text(
        "One of the two models derives from the other {how}, or both derive from a common ancestor: if they were unrelated, "
        "agreement like this would have a chance below 10^{p}.",
        how=None,
        p=None,
    ),
    Text("with its vocabulary and embeddings replaced"),
    Text(
        "distillation and training on another model's output: not seen in weights, unless hidden states were matched, which can "
        "leave agreement"
    ),
)
