"""How the registry builds, fits and loads this probe."""

from pjepa.probes.attentive.config import CONFIG
from pjepa.probes.attentive.probe import AttentiveProbe
from pjepa.probes.base.trained import TrainedKind

TRAINED_KIND = TrainedKind("attentive", CONFIG, AttentiveProbe)
KIND = TRAINED_KIND.probe_kind
