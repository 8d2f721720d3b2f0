"""Convert reports of schema 1 to schema 2: parse what only English sentences told, here and nowhere else."""

from typing import Any

from kinprint.results.p_values import PMethod

_STARTS = {
    **{str(method.label): method for method in PMethod},
    "1/k! for the best of ": PMethod.BEST_LAYERS,
    "least of the experts": PMethod.LEAST_EXPERT,
    "least of ": PMethod.LEAST_LAYER,
}
_VARIANTS = {
    ("fine_tuned", "with only some tensors changed"): "some",
    ("re_based", "residual dimensions reordered"): "reordered",
    ("re_based", "residual dimensions negated"): "negated",
    ("re_based", "residual dimensions rotated"): "rotated",
    ("re_based", "residual dimensions narrowed or widened"): "resized",
}
_DIRECTED = ("quantised", "pruned", "merged_or_reweighted")
_BACKWARDS, _BOTH = "as if A had been made from B", " and as "


def upgrade(data: Any) -> None:
    """Change parsed JSON of schema 1 to schema 2, in place; what does not look like schema 1 is left for the reader to refuse."""
    for item in data if isinstance(data, list) else data.values() if isinstance(data, dict) else ():
        if isinstance(item, dict | list):
            upgrade(item)
    if not isinstance(data, dict):
        return
    if isinstance(data.get("p_method"), str):
        data |= _method(data["p_method"])
    if isinstance(data.get("sentence"), str) and isinstance(data.get("kind"), str):
        kinds = [(said, name) for (kind, said), name in _VARIANTS.items() if kind == data["kind"]]
        data["variant"] = next((name for said, name in kinds if said in data["sentence"]), None)
    if "edit" in data and isinstance(data.get("reasons"), list):
        reasons = list(map(str, data["reasons"]))
        known = data["edit"] in _DIRECTED and not any(_BOTH in reason for reason in reasons)
        data["direction"] = ("backward" if _BACKWARDS in reasons else "forward") if known else None


def without_text_data(data: Any) -> Any:
    """Return parsed JSON of schema 2 with English alone, as schema 1 has it, to be held against an upgraded report."""
    if isinstance(data, list):
        return [without_text_data(item) for item in data]
    if not isinstance(data, dict):
        return data
    beside = {f"{key}_data" for key in data}
    return {key: without_text_data(item) for key, item in data.items() if key not in beside}


def _method(said: str) -> dict[str, Any]:
    """Return the method, and the sentence where it says more than the method's label."""
    fitting = [start for start in _STARTS if said.startswith(start)]
    method = _STARTS[max(fitting, key=len)] if fitting else None
    return {"p_method": method, "p_detail": None if method is None or said == method.label else said}
