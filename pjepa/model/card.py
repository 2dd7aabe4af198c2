"""The model card (README.md) of an encoder: what it is, its training data and its limits.

Everything in it is passed in, nothing is looked up, so the same encoder has the same card; its text
is `card.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pjepa.core.text import escaped, markdown_table
from pjepa.streams.provenance import StreamInfo

if TYPE_CHECKING:
    from pjepa.model.config import EncoderConfig

Metrics = Mapping[str, Mapping[str, float]]  # representation: metric: percent
METRICS = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50", "top1")
TEXT = Path(__file__).with_name("card.md")


@dataclass(frozen=True)
class CardFacts:
    """Facts besides the architecture; the card lists missing ones as not recorded."""

    tokens: StreamInfo | None = None  # what goes in
    features: StreamInfo | None = None  # what comes out
    takes: Mapping[str, int] = field(default_factory=dict)  # split or data set: takes
    selection: Mapping[str, Any] = field(default_factory=dict)  # selection.json
    metrics: Mapping[str, Metrics] = field(default_factory=dict)  # by probe
    datasets: Sequence[str] = ()  # names of the data sets the takes are from
    backbone: str = ""  # as patches.backbone names it
    licence: str = "other"  # the encoder's own; the videos have theirs


def model_card(config: EncoderConfig, facts: CardFacts | None = None) -> str:
    """Return the card as Markdown, with the front matter that the hub reads."""
    from jinja2 import Environment, StrictUndefined

    facts = facts or CardFacts()
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["escaped"] = escaped
    architecture = [[name, str(value)] for name, value in config.model_dump().items()]
    return environment.from_string(TEXT.read_text(encoding="utf-8")).render(
        vars(facts),
        config=config,
        annotated=config.segments == "annotated" and config.uses_segments,
        front_matter=_front_matter(facts),
        tables=[_table(probe, rows) for probe, rows in facts.metrics.items()],
        architecture=markdown_table(["", ""], architecture),
    )


def _front_matter(facts: CardFacts) -> str:
    """Return the card's front matter: licence, origin, task, and metrics as `model-index`."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="video-classification",
            task_name=f"temporal action segmentation, {probe} probe on frozen features",
            dataset_type=(facts.datasets or ["unknown"])[0],
            dataset_name=", ".join(facts.datasets) or "not recorded",
            metric_type=metric,
            metric_name=f"{metric} (percent)",
            metric_value=round(float(rows["pjepa"][metric]), 2),
        )
        for probe, rows in facts.metrics.items()
        for metric in METRICS
        if metric in rows.get("pjepa", {})
    ]
    # Names on the hub; the released V-JEPA 2.1 files are not there.
    kind, _, name = facts.backbone.partition(":")
    data = ModelCardData(
        library_name="pjepa",
        license=facts.licence,
        pipeline_tag="feature-extraction",
        tags=["video", "procedural-video", "self-supervised", "p-jepa", "arxiv:2606.23256"],
        datasets=list(facts.datasets) or None,
        base_model={"hf": name, "timm": f"timm/{name}"}.get(kind),
        model_name="pjepa" if results else None,
        eval_results=results or None,
    )
    return data.to_yaml().strip()


def _table(probe: str, rows: Metrics) -> str:
    """Return the scores of a probe, a row per representation."""
    names = [name for name in METRICS if any(name in values for values in rows.values())]
    cells = [
        [escaped(row), *(f"{values[n]:.1f}" if n in values else "" for n in names)]
        for row, values in rows.items()
    ]
    return markdown_table([f"{escaped(probe)} probe", *names], cells)
