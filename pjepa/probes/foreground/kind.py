"""How the registry builds, fits and loads this probe."""

from pjepa.probes.base.trained import TrainedKind
from pjepa.probes.foreground.config import CONFIG
from pjepa.probes.foreground.probe import ForegroundProbe

TRAINED_KIND = TrainedKind("foreground", CONFIG, ForegroundProbe)
KIND = TRAINED_KIND.probe_kind
