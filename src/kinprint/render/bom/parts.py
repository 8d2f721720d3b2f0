"""What CycloneDX BOMs of a pair and of many models have in common: models as components, properties, and the file itself."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kinprint._util.plain import printable
from kinprint.errors import NeedsExtra
from kinprint.results.context import Declaration
from kinprint.results.models import FileSummary

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import DisjunctiveLicense

EXTRA = "bom"
SHOWN, NAME = 2000, 200  # characters
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:kinprint:bom")
_DEFAULT_HUB = "https://huggingface.co"  # what a package address of type huggingface means if it names no other
_REPO = re.compile(r"(?:^|/)(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)$")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_NO_DATE = datetime(2000, 1, 1, tzinfo=UTC)  # the library dates what has no date by the clock

_SHA256 = re.compile(r'etag:"?([0-9a-f]{64})"?')

Facts = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Entry:
    """A model as a BOM holds it. ``key`` is what tells it from the others: "a" and "b", or its number from 1."""

    key: str
    reference: str
    location: str
    on_hub: bool
    commit: str | None
    architecture: str
    declares: Declaration | None

    @property
    def ref(self) -> str:
        """What the parts of the BOM call it."""
        return f"model-{self.key}"


def require_library() -> None:
    """See that the library is there.

    Raises
    ------
    NeedsExtra
        If cyclonedx-python-lib is not installed.
    """
    try:
        importlib.import_module("cyclonedx.output.json")
    except ImportError as error:
        raise NeedsExtra("writing a CycloneDX BOM", extra=EXTRA) from error


def component_of(entry: Entry, reference: str, **more: Any) -> Component:
    """Return a model as component: its name, version, licence and package address, as far as they are known."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    named: dict[str, Any] = {"name": printable(entry.reference, NAME)}
    repo = _REPO.search(entry.location) if entry.on_hub else None
    if repo is not None:
        owner, name = repo["owner"], repo["name"]
        commit = entry.commit.lower() if entry.commit and _COMMIT.fullmatch(entry.commit.lower()) else None
        named = {"group": owner, "name": name, "version": commit}
        hub = entry.location.removesuffix(f"/{owner}/{name}")
        elsewhere = {"repository_url": hub} if hub != _DEFAULT_HUB else None
        named["purl"] = PackageURL("huggingface", owner, name, version=commit, qualifiers=elsewhere)
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=reference,
        licenses=_licences(entry.declares),
        **named,
        **more,
    )


def files_of(entry: Entry, files: Sequence[FileSummary]) -> list[Component]:
    """Return the weight files of a model as components."""
    return [_file(entry, number, file) for number, file in enumerate(files)]


def _file(entry: Entry, number: int, file: FileSummary) -> Component:
    """Return a weight file. Only the hub tells a digest of a whole file (its entity tag); kinprint reads ranges."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    facts = [("kinprint:size", str(file.size)), ("kinprint:identity", file.identity)]
    tag = _SHA256.fullmatch(file.identity) if entry.on_hub else None
    hashes = []
    if tag:
        hashes.append(HashType(alg=HashAlgorithm.SHA_256, content=tag[1]))
        facts.append(("kinprint:hash_source", "as the hub states it; kinprint did not read the whole file"))
    return Component(
        type=ComponentType.FILE,
        name=printable(file.name, NAME),
        bom_ref=f"{entry.ref}-file-{number}",
        hashes=hashes,
        properties=properties(facts),
    )


def relative(entry: Entry, of: Entry) -> Component:
    """Return a model as it stands in the pedigree of another one."""
    return component_of(entry, f"{entry.ref}-related-to-{of.key}")


def _licences(declares: Declaration | None) -> list[DisjunctiveLicense]:
    from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement
    from cyclonedx.spdx import fixup_id

    if declares is None or not declares.licence or not declares.licence.strip():
        return []
    known = fixup_id(declares.licence)
    name = None if known else printable(declares.licence, NAME)
    return [DisjunctiveLicense(id=known, name=name, acknowledgement=LicenseAcknowledgement.DECLARED)]


def properties(facts: Facts) -> list[Property]:
    """Return facts as properties; empty values are left out."""
    from cyclonedx.model import Property

    return [Property(name=name, value=printable(value, SHOWN)) for name, value in facts if value]


def declared_facts(declares: Declaration | None) -> Facts:
    """Yield what the card and config of a model say of its origin."""
    if declares is not None:
        yield "kinprint:declared_relation", declares.relation or ""
        for base in declares.base_models:
            yield "kinprint:declared_base", base


def serial_of(content: bytes) -> uuid.UUID:
    """Return a number that is the content's own."""
    return uuid.uuid5(_SPACE, hashlib.sha256(content).hexdigest())


def written(
    entries: Sequence[Entry],
    components: Iterable[Component],
    facts: Facts,
    *,
    serial: uuid.UUID,
    version: str,
    started: datetime | None,
) -> bytes:
    """Return the BOM as JSON (UTF-8).

    Parameters
    ----------
    entries, components
        The models, and what was made of them.
    facts
        Properties of the BOM.
    serial, version, started
        Its number, the version of kinprint, and when the comparison was made, if the report tells.
    """
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6

    tool = Component(name="kinprint", version=printable(version, NAME), type=ComponentType.APPLICATION, bom_ref="tool")
    bom = Bom(
        serial_number=serial,
        components=components,
        metadata=BomMetaData(timestamp=started or _NO_DATE, tools=ToolRepository(components=[tool])),
        properties=properties(facts),
    )
    data = json.loads(JsonV1Dot6(bom).output_as_string())
    if started is None:
        del data["metadata"]["timestamp"]
    # the library has no model cards yet; the format has
    families = {entry.ref: printable(entry.architecture, NAME) for entry in entries}
    places = list(families)  # in the order in which the models were given, where the library sorts by name
    data["components"].sort(key=lambda component: places.index(component["bom-ref"]))
    for component in data["components"]:
        component["modelCard"] = {"modelParameters": {"architectureFamily": families[component["bom-ref"]]}}
    return json.dumps(data, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
