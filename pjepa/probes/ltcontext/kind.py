"""How the registry builds, fits and loads this probe."""

from pjepa.probes.base.trained import TrainedKind
from pjepa.probes.ltcontext.config import CONFIG
from pjepa.probes.shared.long_term.probe import LTContextProbe

TRAINED_KIND = TrainedKind("ltcontext", CONFIG, LTContextProbe)
KIND = TRAINED_KIND.probe_kind
