"""Statistical replicas of the studied models: synthetic checkpoints with the published statistics."""

from kinprint.studies.replicas.shapes import NAMES, REPOS
from kinprint.studies.replicas.write import PARTS, write_replicas

__all__ = ["NAMES", "PARTS", "REPOS", "write_replicas"]
