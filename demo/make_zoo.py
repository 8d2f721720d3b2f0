"""Write tests/family/zoo.json: the tiny zoo, made of the bundled models and of what numpy can make of them.

Usage::

    python demo/make_zoo.py            (a second; needs kinprint alone, no torch)
    python demo/make_zoo.py --check    (fails if the committed file is not what the models and the plan give)
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kinprint.lab.zoo.members import Bundled
from kinprint.lab.zoo.relations import Record
from kinprint.lab.zoo.store import FILE, hashes_of
from kinprint.lab.zoo.tiny import TINY

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "family"
MANIFESTS = (ROOT / "demo" / "models" / "MANIFEST.json", FOLDER / "MANIFEST.json")
FILES = ["config.json", "model.safetensors", "tokenizer.json"]
MEASURED = ("unigram_entropy_nats", "loss_before_nats", "final_loss_nats", "least_norm_std", "corpora", "corpus_sha256")


def tiny_record() -> Record:
    """Return the record of what is in the tree."""
    manifest: dict[str, Any] = {}
    for file in MANIFESTS:
        manifest |= json.loads(file.read_text(encoding="utf-8"))["models"]
    members = {member.name: member for member in TINY}
    bundled = {name: member.how.folder for name, member in members.items() if isinstance(member.how, Bundled)}
    if bundled.keys() != manifest.keys():
        raise SystemExit(f"the plan and the manifests differ in {sorted(bundled.keys() ^ manifest.keys())}")
    stored = {name: (folder, hashes_of(FOLDER / folder, FILES)) for name, folder in bundled.items()}
    wanted = (*MEASURED, "seeds", "recipe", "versions")
    measured = {name: {key: manifest[name][key] for key in wanted} for name in bundled}
    return Record("tiny", "python demo/make_zoo.py", manifest["base"]["versions"], members, stored, measured)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    arguments = parser.parse_args()
    data = tiny_record().to_json()
    target = FOLDER / FILE
    if not arguments.check:
        target.write_bytes(data)
        print(f"{target.name}: {len(TINY)} members")
    elif not target.is_file() or target.read_bytes() != data:
        print(f"{target.name} is not what the models and the plan give; run demo/make_zoo.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
