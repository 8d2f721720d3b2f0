"""Write models, their pedigree and their properties as a CycloneDX BOM, whatever report they come from."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kinprint._util.plain import printable
from kinprint.errors import imported
from kinprint.render.facts import NAME, SHOWN, Facts
from kinprint.render.tables.tidy import Cell
from kinprint.results.context import Declaration
from kinprint.results.models import FileSummary, ModelSummary
from kinprint.results.tree import TreeModel

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import DisjunctiveLicense

_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:kinprint:bom")
_DEFAULT_HUB = "https://huggingface.co"  # what a package address of type huggingface means if it names no other
_REPO = re.compile(r"(?:^|/)(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)$")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHA256 = re.compile(r'etag:"?([0-9a-f]{64})"?')
_NO_DATE = datetime(2000, 1, 1, tzinfo=UTC)  # the library dates what has no date by the clock
_HASH_SOURCE = "as the hub states it; kinprint did not read the whole file"


@dataclass(frozen=True)
class Entry:
    """A model as a BOM holds it. ``key`` tells it from the others: "a" and "b", or its number from 1."""

    key: str
    model: ModelSummary | TreeModel
    declares: Declaration | None

    @property
    def ref(self) -> str:
        """What the parts of the BOM call the model."""
        return f"model-{self.key}"

    @property
    def on_hub(self) -> bool:
        """Whether the model is of the hub; older reports on many models tell by a commit alone, which nothing else has."""
        return self.model.kind == "hub" if self.model.kind else self.model.commit is not None


@dataclass(frozen=True)
class Pedigree:
    """How a model relates to others: notes, and its "ancestors", "descendants" and "variants"."""

    notes: str
    relatives: Mapping[str, Sequence[Entry]]


def bom_json(
    models: Sequence[tuple[Entry, Pedigree | None, Facts]],
    facts: Facts,
    *,
    content: bytes,
    version: str,
    started: datetime | None,
) -> bytes:
    """Return a CycloneDX 1.6 BOM as JSON (UTF-8): models in the order given, and `facts` as its properties.

    Its serial number is made from `content`. Raises NeedsExtra if cyclonedx-python-lib is not installed.
    """
    output = imported("cyclonedx.output.json", "writing a CycloneDX BOM", extra="bom")
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository

    tool = Component(name="kinprint", version=printable(version, NAME), type=ComponentType.APPLICATION, bom_ref="tool")
    bom = Bom(
        serial_number=uuid.uuid5(_SPACE, hashlib.sha256(content).hexdigest()),
        components=[_model(*model) for model in models],
        metadata=BomMetaData(timestamp=started or _NO_DATE, tools=ToolRepository(components=[tool])),
        properties=_properties(facts),
    )
    data = json.loads(output.JsonV1Dot6(bom).output_as_string())
    if started is None:
        del data["metadata"]["timestamp"]
    # the library has no model cards yet; the format has
    families = {entry.ref: printable(entry.model.architecture, NAME) for entry, _, _ in models}
    places = list(families)  # in the order in which the models were given, where the library sorts by name
    data["components"].sort(key=lambda component: places.index(component["bom-ref"]))
    for component in data["components"]:
        component["modelCard"] = {"modelParameters": {"architectureFamily": families[component["bom-ref"]]}}
    return json.dumps(data, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _model(entry: Entry, pedigree: Pedigree | None, facts: Facts) -> Component:
    """Return a model with its files, its pedigree, and what its card and config say of its origin."""
    from cyclonedx.model import component

    told = None
    if pedigree is not None:
        relatives: dict[str, Any] = {
            kind: [_component(other, f"{other.ref}-related-to-{entry.key}") for other in others]
            for kind, others in pedigree.relatives.items()
        }
        told = component.Pedigree(**relatives, notes=pedigree.notes)
    declares = entry.declares
    card = {"declared_relation": declares.relation, "declared_base": declares.base_models} if declares else {}
    files = [_file(entry, number, file) for number, file in enumerate(entry.model.files)]
    return _component(entry, entry.ref, components=files, pedigree=told, properties=_properties({**facts, **card}))


def _component(entry: Entry, reference: str, **more: Any) -> Component:
    """Return a model as component: its name, version, licence and package address, as far as they are known."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    model = entry.model
    named: dict[str, Any] = {"name": printable(model.reference, NAME)}
    if entry.on_hub and (repo := _REPO.search(model.location)):
        owner, name = repo["owner"], repo["name"]
        commit = model.commit.lower() if model.commit and _COMMIT.fullmatch(model.commit.lower()) else None
        hub = model.location.removesuffix(f"/{owner}/{name}")
        elsewhere = {"repository_url": hub} if hub != _DEFAULT_HUB else None
        address = PackageURL("huggingface", owner, name, version=commit, qualifiers=elsewhere)
        named = {"group": owner, "name": name, "version": commit, "purl": address}
    kind = ComponentType.MACHINE_LEARNING_MODEL
    return Component(type=kind, bom_ref=reference, licenses=_licences(entry.declares), **named, **more)


def _file(entry: Entry, number: int, file: FileSummary) -> Component:
    """Return a weight file. Only the hub tells a digest of a whole file (its entity tag); kinprint reads ranges."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    tag = _SHA256.fullmatch(file.identity) if entry.on_hub else None
    facts: Facts = {"size": file.size, "identity": file.identity, "hash_source": _HASH_SOURCE if tag else ""}
    return Component(
        type=ComponentType.FILE,
        name=printable(file.name, NAME),
        bom_ref=f"{entry.ref}-file-{number}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=tag[1])] if tag else [],
        properties=_properties(facts),
    )


def _licences(declares: Declaration | None) -> list[DisjunctiveLicense]:
    from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement
    from cyclonedx.spdx import fixup_id

    if declares is None or not declares.licence or not declares.licence.strip():
        return []
    known = fixup_id(declares.licence)
    name = None if known else printable(declares.licence, NAME)
    return [DisjunctiveLicense(id=known, name=name, acknowledgement=LicenseAcknowledgement.DECLARED)]


def _properties(facts: Facts) -> list[Property]:
    """Return facts as properties, one for each value of a list; empty values are left out."""
    from cyclonedx.model import Property

    return [
        Property(name=f"kinprint:{name}", value=printable(text, SHOWN))
        for name, cell in facts.items()
        for text in (map(as_text, cell) if isinstance(cell, tuple) else (as_text(cell),))
        if text
    ]


def as_text(cell: Cell) -> str:
    """Return a fact as text: floats that read back exactly, empty for what does not exist."""
    if isinstance(cell, tuple):
        return "; ".join(map(str, cell))
    return "" if cell is None else cell if isinstance(cell, str) else str(cell).lower()
