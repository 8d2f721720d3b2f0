"""Open a model: a checkpoint whose tensors have roles, with its config, tokens and card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path

from kinprint._util.cycles import no_collection
from kinprint._util.numeric import FloatArray
from kinprint._util.records import dataclass
from kinprint.arch import Naming, Role, RoleTensor, TensorKey, name_tensors, residual_width
from kinprint.arch.roles import role_named
from kinprint.errors import BadSelection
from kinprint.formats.checkpoint import Checkpoint, open_checkpoint
from kinprint.formats.factors import factor_pairs, multiplied
from kinprint.formats.plan import Run, plan_reads
from kinprint.formats.tensors import Tensors
from kinprint.model.cards import Card, card_text, parse_card
from kinprint.model.reader import ModelPlan, RoleSlice, Sample, Want, read_together, want_slices
from kinprint.model.tokens import TOKENIZER_FILE, vocabulary
from kinprint.refs import path_text
from kinprint.results.measurements import Skipped
from kinprint.results.models import SYNTHETIC, FileSummary, ModelSummary
from kinprint.sources.session import Session
from kinprint.sources.settings import Settings
from kinprint.text import Text


@dataclass(frozen=True)
class RolePresence:
    """Where a model has a role: its layers (empty for a tensor of the whole model), its experts, and the logical shapes."""

    layers: tuple[int, ...]
    experts: int
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Model(AbstractContextManager["Model"]):
    """A checkpoint with roles. As a context manager it closes the session that `kinprint.open` made for it.

    Examples
    --------
    >>> with kinprint.open("demo/models/base") as model:        # doctest: +SKIP
    ...     model.tensor("attn_q", layer=3, rows=(0, 8)).shape
    (8, 96)
    """

    checkpoint: Checkpoint
    naming: Naming
    hidden: int | None
    owns_session: bool = False

    @property
    def label(self) -> str:
        """The model as the user named it."""
        return self.checkpoint.label

    @cached_property
    def parts(self) -> Mapping[TensorKey, RoleTensor]:
        """Where each tensor is stored, by role, layer and expert."""
        with no_collection():
            return {part.key: part for part in self.naming.tensors}

    @cached_property
    def towers(self) -> Mapping[str, Model]:
        """The model by the kind of thing that it works on, and the towers beside it, each a model of its own."""
        found = {self.naming.kind: self}
        for tower, naming in self.naming.towers:
            inside = {
                name: row for name, row in self.checkpoint.tensors.stored().items() if name.startswith(tower.prefix)
            }
            checkpoint = replace(self.checkpoint, config=tower.config, tensors=Tensors(inside))
            found.setdefault(tower.kind, Model(checkpoint, naming, residual_width(naming, tower.config)))
        return found

    def part(self, role: Role, layer: int | None = None, expert: int | None = None) -> RoleTensor:
        """Return where a tensor is stored; raise BadSelection if the model has none."""
        found = self.parts.get((role, layer, expert))
        if found is None:
            raise self._absent(role, layer, expert)
        return found

    def _absent(self, role: Role, layer: int | None, expert: int | None) -> BadSelection:
        numbers = (("layer", layer), ("expert", expert))
        place = "".join(f", {word} {number}" for word, number in numbers if number is not None)
        there = self.roles.get(role.value)
        if there is None:
            hint = f"its roles: {', '.join(self.roles)}"
        elif not there.layers:
            hint = "the role belongs to no layer: leave layer out"
        else:
            spread = f"layers {there.layers[0]} to {there.layers[-1]}"
            hint = f"it is there in {spread}" + (f", experts 0 to {there.experts - 1}" if there.experts else "")
        return BadSelection(f"{self.label} has no tensor {role.value}{place}", hint=hint)

    @cached_property
    def roles(self) -> Mapping[str, RolePresence]:
        """Roles of the model, with their layers and shapes."""
        grouped: dict[str, list[RoleTensor]] = {}
        for part in self.naming.tensors:
            grouped.setdefault(part.role.value, []).append(part)
        return {
            role: RolePresence(
                tuple(dict.fromkeys(part.layer for part in parts if part.layer is not None)),
                len({part.expert for part in parts if part.expert is not None}),
                tuple(dict.fromkeys(part.shape for part in parts)),
            )
            for role, parts in grouped.items()
        }

    def cost(self, want: Want) -> int:
        """Return the bytes that a want takes by itself. Pure."""
        return sum(item.stored.nbytes for item in self._slices(want))

    def _slices(self, want: Want) -> tuple[RoleSlice, ...]:
        return tuple(want_slices(self.checkpoint, self.part(*want.key), want))

    def plan(self, wants: Sequence[Want], *, max_gap_bytes: int = 0) -> ModelPlan:
        """Plan to read what is wanted, as byte ranges merged across gaps of up to `max_gap_bytes`. Pure."""
        slices = tuple(map(self._slices, wants))
        stored = [item.stored for group in slices for item in group]
        return ModelPlan(self.checkpoint, tuple(wants), slices, plan_reads(stored, max_gap_bytes=max_gap_bytes))

    def read(self, wants: Sequence[Want], *, max_gap_bytes: int = 0) -> list[Sample]:
        """Read what is wanted, in the order given."""
        return read_together([self.plan(wants, max_gap_bytes=max_gap_bytes)])[0]

    def tensor(
        self, role: Role | str, layer: int | None = None, expert: int | None = None, rows: Run | None = None
    ) -> FloatArray:
        """Return a tensor, or the rows ``(start, stop)`` of it, as the model uses it: float64, out × in."""
        named = role_named(role)
        count = self.part(named, layer, expert).shape[0]
        if rows is not None and not 0 <= rows[0] < rows[1] <= count:
            said = f"{self.label}: cannot read rows {rows[0]} to {rows[1]} of {named.value}, which has {count}"
            raise BadSelection(said, hint=f"expected (start, stop) with 0 <= start < stop <= {count}")
        return self.read([Want(named, layer, expert, rows)])[0].values

    @property
    def config(self) -> Mapping[str, object]:
        """Entries of config.json, or of the file's own metadata; empty without either."""
        return self.checkpoint.config

    @cached_property
    def tokens(self) -> Mapping[str, int]:
        """The vocabulary: token to id; empty without a tokenizer that can be read."""
        content = self.checkpoint.read_json(TOKENIZER_FILE)
        return {} if content is None else vocabulary(content)

    @cached_property
    def card(self) -> Card:
        """Origin and licence declared by the model card; empty without one."""
        return parse_card(card_text(self.checkpoint)[0] or "")

    def close(self) -> None:
        """Close the session, if `kinprint.open` made it for this model."""
        if self.owns_session:
            self.checkpoint.session.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def summary(self) -> ModelSummary:
        """Return what a report says about this model."""
        where, stored = self.checkpoint.provenance, self.checkpoint.tensors
        reasons = Counter(item.reason for item in self.naming.excluded)
        return ModelSummary(
            **asdict(where),
            architecture=self.naming.architecture,
            architecture_guessed=self.naming.guessed,
            layers=self.naming.layers,
            experts=self.naming.experts,
            hidden=self.hidden,
            tensors=len(stored),
            parameters=stored.elements(),
            stored_bytes=stored.nbytes(),
            unmapped=self.naming.unmapped,
            excluded=tuple(Skipped(Text("stored tensors"), count, reason) for reason, count in reasons.items()),
            notes=(*self.checkpoint.notes, *self.naming.notes, *[SYNTHETIC] * (self.config.get("synthetic") is True)),
            files=tuple(FileSummary(file.name, file.size, file.identity) for file in self.checkpoint.files),
        )


def open(  # noqa: A001 - read as kinprint.open
    reference: str | Path, *, settings: Settings | None = None, budget_bytes: int | None = None
) -> Model:
    """Open a model by itself: headers and config are read now, tensors when they are asked for.

    Parameters
    ----------
    reference : hub id, folder, file or URL.
    settings : where and how to read; by default from the environment.
    budget_bytes : limit on all bytes read; None for no limit.

    The model closes what it opened: use it as a context manager, or call ``close()``.
    """
    session = Session(settings, budget_bytes=budget_bytes)
    try:
        return replace(open_model(path_text(reference), session), owns_session=True)
    except BaseException:
        session.close()
        raise


def open_model(reference: str, session: Session, *, alone: bool = False) -> Model:
    """Open a checkpoint and name its tensors, reading none. With `alone` an adapter is not merged, and has no roles."""
    with no_collection():
        return _open_model(reference, session, alone=alone)


def _open_model(reference: str, session: Session, *, alone: bool) -> Model:
    checkpoint = open_checkpoint(reference, session, alone=alone)
    if checkpoint.adapter and checkpoint.base is None:
        return Model(checkpoint, Naming("none", False, 0, 0, (), tuple(sorted(checkpoint.tensors)), (), ()), None)
    naming = name_tensors(checkpoint.config, checkpoint.tensors.shapes())
    checkpoint, naming = _multiply_factors(checkpoint, naming)
    if naming.fixed_positions:  # known of the architecture; a config need not say it, and single files have none
        checkpoint = replace(checkpoint, config={**checkpoint.config, "sinusoidal_pos_embds": True})
    return Model(checkpoint, naming, residual_width(naming, checkpoint.config))


def _multiply_factors(checkpoint: Checkpoint, naming: Naming) -> tuple[Checkpoint, Naming]:
    """Take pairs of tensors without a role that multiply to one which has a role, and fits the residual width, as that one."""
    shapes = checkpoint.tensors.shapes()
    # where roles were guessed, one of the factors may have been taken for the matrix
    pairs = factor_pairs(shapes, list(shapes) if naming.guessed else naming.unmapped) if naming.unmapped else {}
    if not pairs:
        return checkpoint, naming
    whole = multiplied(checkpoint.tensors, pairs)
    tried = name_tensors(checkpoint.config, whole.shapes())
    width = residual_width(tried, checkpoint.config)
    fits, unknown = {part.name for part in tried.tensors if width in part.shape}, set(naming.unmapped)
    pairs = {name: pair for name, pair in pairs.items() if unknown.issuperset(pair) or not tried.guessed}
    pairs = {name: pair for name, pair in pairs.items() if name in fits}
    if not pairs:
        return checkpoint, naming
    note = Text("{n} matrices are stored as two factors each, and multiplied when read", n=len(pairs))
    whole = multiplied(checkpoint.tensors, pairs)
    checkpoint = replace(checkpoint, tensors=whole, notes=(*checkpoint.notes, note))
    return checkpoint, name_tensors(checkpoint.config, whole.shapes())


def open_models(references: Sequence[str], session: Session) -> list[Model]:
    """Open several models at once; the first failure, in the order given, is raised."""
    jobs = [session.coordinate(partial(open_model, reference, session)) for reference in references]
    return [job.result() for job in jobs]
