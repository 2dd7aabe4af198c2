"""How the registry builds, fits and loads this probe."""

from pjepa.probes.base.trained import TrainedKind
from pjepa.probes.fact.config import CONFIG
from pjepa.probes.fact.probe import FactProbe

TRAINED_KIND = TrainedKind(
    "fact",
    CONFIG,
    FactProbe,
    adapt=lambda config, task: config.with_tokens_for(task.most_segments),
)
KIND = TRAINED_KIND.probe_kind
