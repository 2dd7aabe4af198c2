"""How the registry builds, fits and loads this probe."""

from pjepa.probes.base.trained import TrainedKind
from pjepa.probes.ltcausal.config import CONFIG
from pjepa.probes.ltcausal.probe import LTCausalProbe

TRAINED_KIND = TrainedKind("ltcausal", CONFIG, LTCausalProbe)
KIND = TRAINED_KIND.probe_kind
