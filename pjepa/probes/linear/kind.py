"""How the registry fits and loads this probe."""

from pjepa.probes.base.registry import ProbeKind
from pjepa.probes.linear.fit import linear_runs
from pjepa.probes.linear.primitives import primitive_readings
from pjepa.probes.linear.probe import LinearProbe

KIND = ProbeKind(linear_runs, LinearProbe.load, primitive_readings)
