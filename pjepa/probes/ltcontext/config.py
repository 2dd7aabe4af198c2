"""`probe.ltcontext`: LTContext and its training."""

from pjepa.probes.shared.long_term.config import LTContextConfig

CONFIG = LTContextConfig
