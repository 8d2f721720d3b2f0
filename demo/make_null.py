"""Make the empirical null that ships with kinprint, from the independent models of the demo and test families.

Usage::

    python demo/make_null.py            (about a minute; needs kinprint alone, no torch)
    python demo/make_null.py --check    (fails if the committed null is not what these models give)
    python demo/make_null.py --sample   (the same for the pairs of the first model with all others)

Models of one group share weights, an initialisation or a teacher's text, and are never paired across that group. A distilled
model is independent of its teacher in its weights: they started from other random numbers. So are the layers of a draft model.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kinprint.evidence.calibration import calibrate
from kinprint.evidence.empirical_null import EmpiricalNull, load_null

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/kinprint/evidence/data/default_null.json"
NAME = "kinprint's default null (7 tiny Llama models, trained independently)"
NOTE = (
    "Tiny models of width 96, really trained on small corpora; wider models agree less by chance. One of them (draft) has "
    "the embeddings and the head of another (base), and layers of its own: layers trained in one residual basis agree more."
)
GROUPS = {
    "demo/models/base": "base",
    "demo/models/unrelated": "unrelated",
    "tests/family/twin": "twin",
    "tests/family/distilled_1": "distilled_1",
    "tests/family/distilled_2": "distilled_2",
    "tests/family/indep": "indep",
    "tests/family/draft": "draft",
}


def begins_with(known: EmpiricalNull, found: EmpiricalNull) -> bool:
    """Whether a null has the models of another, and begins with its values."""
    same = [(model.label, model.identity) for model in known.models] == [
        (model.label, model.identity) for model in found.models
    ]
    values = {item.statistic: item.values for item in known.samples}
    return (
        same
        and values.keys() == {item.statistic for item in found.samples}
        and all(values[item.statistic][: item.pairs] == item.values for item in found.samples)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    parser.add_argument("--sample", action="store_true", help="compare the pairs of the first model alone")
    arguments = parser.parse_args()
    first, *others = GROUPS
    # models of one group are not paired: pairs of the first model are the first that are made
    chosen = {first: "first"} | dict.fromkeys(others, "others") if arguments.sample else GROUPS
    groups = {str(ROOT / folder): group for folder, group in chosen.items()}
    null = calibrate(list(groups), name=NAME, note=NOTE, groups=groups, budget_bytes=None)
    data = null.to_json()
    if arguments.check or arguments.sample:
        if not (begins_with(load_null(), null) if arguments.sample else TARGET.read_bytes() == data):
            print(f"{TARGET.name} is not what the models give; run demo/make_null.py")
            return 1
        print(f"{TARGET.name} is what the models give")
        return 0
    TARGET.write_bytes(data)
    for sample in null.samples:
        print(f"{sample.statistic}: {sample.pairs} values, mean {sample.mean:.4f}, largest {sample.largest:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
