"""Build hook of the wheel: the models that `kinprint demo` compares, the first layers of three of demo/models.

Whole they would add 2.3 MB to the wheel, cut they add 1.4 MB; git has each once. Standard library only: builds are isolated.
"""

import json
import re
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODELS = ("base", "unrelated", "finetune")
LAYERS = 2
PLACE = "kinprint/demo_models"


class CutModels(BuildHookInterface):
    """Puts cut models into the wheel; an editable installation finds the whole ones in its clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self.made = Path(tempfile.mkdtemp(prefix="kinprint-wheel-"))
        for name in MODELS:
            cut(Path(self.root) / "demo" / "models" / name, self.made / name)
            build_data["force_include"][str(self.made / name)] = f"{PLACE}/{name}"

    def finalize(self, version: str, *_: Any) -> None:
        if version != "editable":
            shutil.rmtree(self.made)


def cut(source: Path, target: Path, layers: int = LAYERS) -> None:
    """Write a model that has only the first layers of another."""
    target.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target / name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8")) | {"num_hidden_layers": layers}
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    raw = (source / "model.safetensors").read_bytes()
    start = 8 + struct.unpack_from("<Q", raw)[0]
    header, data = json.loads(raw[8:start]), bytearray()
    kept = {"__metadata__": header.pop("__metadata__")}
    for name, tensor in header.items():
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        if layer and int(layer[1]) >= layers:
            continue
        first, end = tensor["data_offsets"]
        kept[name] = tensor | {"data_offsets": [len(data), len(data) + end - first]}
        data += raw[start + first : start + end]
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
