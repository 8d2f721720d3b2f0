"""All studies, in the order in which `kinprint study --list` shows them. A new one is named here."""

from __future__ import annotations

from kinprint.studies.baselines import BASELINES
from kinprint.studies.bias import BIAS
from kinprint.studies.metrics import METRICS_STUDY
from kinprint.studies.origin import ORIGIN
from kinprint.studies.recipe import STUDIES
from kinprint.studies.sanity import SANITY
from kinprint.studies.scale import SCALE
from kinprint.studies.toy_init import TOY_INIT

for _study in (BASELINES, METRICS_STUDY, BIAS, SANITY, ORIGIN, TOY_INIT, SCALE):
    STUDIES.add(_study.name, _study)
