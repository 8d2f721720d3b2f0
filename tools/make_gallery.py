"""Make docs/gallery.md from the output of `kinprint study all --replicas --out DIR`: every figure, small enough to commit.

    python tools/make_gallery.py DIR

Figures are drawn by the studies; here they are only reduced in size and colours, and put under their captions.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
PAGE, FOLDER = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
WIDTH, COLOURS = 1500, 64
ORDER = ("baselines", "metrics", "bias", "sanity", "origin", "toy-init", "scale")
HEAD = """# Gallery

Every figure of the seven studies ([studies.md](studies.md)), as `kinprint study all --replicas` draws it. **The models are
statistical replicas**: synthetic checkpoints made to have the published means, standard deviations and correlations, not the
models themselves. The toy experiment trains its own small models. SVG files of all figures are written beside the PNG ones.

Made by `make gallery`; the settings are the studies' defaults, seed 0.
"""


def reduce(source: Path, target: Path) -> None:
    """Write a smaller copy of a picture; films are copied as they are."""
    if source.suffix == ".gif":
        shutil.copyfile(source, target)
        return
    with Image.open(source) as image:
        picture = image.convert("RGB")
        picture.thumbnail((WIDTH, 4 * WIDTH))
        picture.quantize(COLOURS).save(target, optimize=True)


def main() -> None:
    """Read results, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="the folder given to `kinprint study all --out`")
    results: Path = parser.parse_args().results
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    lines = [HEAD]
    for study in ORDER:
        data = json.loads((results / study / "results.json").read_text())
        lines.append(f"## {study}: {data['title']}\n")
        for part in data["parts"]:
            for figure in part["figures"]:
                found = [results / study / "figures" / f"{figure['name']}{end}" for end in (".gif", ".png")]
                source = next(path for path in found if path.exists())
                target = FOLDER / f"{study}-{source.name}"
                reduce(source, target)
                lines += [
                    f"![{figure['caption']}](gallery/{target.name})\n",
                    f"*{part['title']}.* {figure['caption']}\n",
                ]
    PAGE.write_text("\n".join(lines))
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{PAGE.relative_to(ROOT)}: {len(list(FOLDER.iterdir()))} figures, {size:,} bytes")


if __name__ == "__main__":
    main()
