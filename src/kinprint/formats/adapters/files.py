"""Tell adapters from whole models by the names of their files; what reads adapters is loaded only where one is found."""

import re
from collections.abc import Collection

from kinprint.formats.format import FORMATS
from kinprint.sources.base import Folder

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_WHOLE_MODEL = re.compile(r"-\d{5}-of-\d{5}\.[A-Za-z0-9]+$")


def has_full_weights(listed: Collection[str]) -> bool:
    """Whether a folder that may hold an adapter holds a whole model, beside what trainers leave behind."""
    for name in listed:
        if "/" in name or name in ADAPTER_FILES:
            continue
        for item in FORMATS.values():
            known = name in (*item.index_names, *item.single_names)
            if known or (item.claims(name) and (item.split_by_name or _WHOLE_MODEL.search(name))):
                return True
    return False


def without_adapter(listed: frozenset[str]) -> frozenset[str]:
    """Return the files of a whole model, without the adapter that lies beside it."""
    beside = listed & set(ADAPTER_FILES)
    return listed - beside if beside and has_full_weights(listed) else listed


def adapter_names(folder: Folder, wanted: str | None, *, unlisted: bool) -> tuple[str, ...]:
    """Return the adapter's config and the names that its weights may have."""
    if wanted is not None:
        below, slash, name = wanted.rpartition("/")
        return (below + slash + ADAPTER_CONFIG, wanted) if name in ADAPTER_FILES else ()
    listed = folder.names
    if listed is None:
        return (ADAPTER_CONFIG, *ADAPTER_FILES) if unlisted else ()
    found = tuple(name for name in ADAPTER_FILES if name in listed)
    return (ADAPTER_CONFIG, *found) if found and ADAPTER_CONFIG in listed and not has_full_weights(listed) else ()
