"""The model card (README.md) of an encoder: what it is, its training data and its limits.

Everything in it is passed in, nothing is looked up, so the same encoder has the same card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pjepa.streams.provenance import StreamInfo

if TYPE_CHECKING:
    from pjepa.model.config import EncoderConfig

Metrics = Mapping[str, Mapping[str, float]]  # representation: metric: percent
PAPER = "https://arxiv.org/abs/2606.23256"
SHOWN = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50", "top1")


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
    known = facts or CardFacts()
    parts = [
        f"---\n{_front_matter(known)}\n---",
        "# P-JEPA encoder",
        "Tokens of a long procedural video in, contextualised tokens of the same length out "
        f"(`model.safetensors`, `config.json`). Method: [P-JEPA]({PAPER}).",
        _usage(config),
        _data(known),
        _choice(known.selection),
        _metrics(known.metrics),
        _limits(config, known),
        _architecture(config),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(known: CardFacts) -> str:
    """Return the card's front matter: licence, origin, task, and metrics as `model-index`."""
    from huggingface_hub import EvalResult, ModelCardData

    name = ", ".join(known.datasets) or "not recorded"
    results = [
        EvalResult(
            task_type="video-classification",
            task_name=f"temporal action segmentation, {probe} probe on frozen features",
            dataset_type=(known.datasets or ["unknown"])[0],
            dataset_name=name,
            metric_type=metric,
            metric_name=f"{metric} (percent)",
            metric_value=round(float(rows["pjepa"][metric]), 2),
        )
        for probe, rows in known.metrics.items()
        for metric in SHOWN
        if metric in rows.get("pjepa", {})
    ]
    data = ModelCardData(
        library_name="pjepa",
        license=known.licence,
        pipeline_tag="feature-extraction",
        tags=["video", "procedural-video", "self-supervised", "p-jepa", "arxiv:2606.23256"],
        datasets=list(known.datasets) or None,
        base_model=_hub_name(known.backbone),
        model_name="pjepa" if results else None,
        eval_results=results or None,
    )
    return data.to_yaml().strip()


def _hub_name(backbone: str) -> str | None:
    """Return the backbone's name on the hub; the released V-JEPA 2.1 files are not there."""
    for prefix, owner in (("hf:", ""), ("timm:", "timm/")):
        if backbone.startswith(prefix):
            return owner + backbone.removeprefix(prefix)
    return None


def _usage(config: EncoderConfig) -> str:
    given = ", segment_lengths=[12, 30, 7]" if _needs_segments(config) else ""
    return (
        "```python\nimport torch\nfrom pjepa import ProcedureEncoder\n"
        f"tokens = torch.randn(49, {config.d_in})  # a take: 49 time steps\n"
        'encoder = ProcedureEncoder.from_pretrained("FOLDER_OR_HUB_ID")\n'
        f"features = encoder.encode(tokens{given})"
        f"  # [T, {config.d_in}] -> [T, {config.width}]\n```"
    )


def _data(known: CardFacts) -> str:
    if known.tokens is None:
        return "## Data\n\nNot recorded here: ask whoever trained it which takes and tokens it saw."
    tokens = known.tokens
    takes = ", ".join(f"{count} {_plain(name)}" for name, count in sorted(known.takes.items()))
    labels = "the features were trained with labels" if tokens.provenance.train_labels else "none"
    return (
        f"## Data\n\n- tokens: {_plain(tokens.source)}, {tokens.width} channels at "
        f"{tokens.fps:g} a second\n- takes: {takes or 'not recorded'}\n"
        f"- labels before pretraining: {labels}"
    )


def _choice(selection: Mapping[str, Any]) -> str:
    if not selection:
        return "## How it was chosen\n\nNot recorded here."
    labels = _plain(str(selection.get("selection_labels", "none")))
    seen = "no labels took part" if labels == "none" else f"labels of `{labels}` took part"
    warning = ""
    if labels in ("val", "test"):
        warning = f" Scores on `{labels}` of the same data are therefore optimistic."
    by = _plain(str(selection.get("by", "?")))
    return (
        f"## How it was chosen\n\nEpoch {_plain(str(selection.get('epoch', '?')))}, by `{by}`: "
        f"{seen}.{warning}"
    )


def _metrics(metrics: Mapping[str, Metrics]) -> str:
    if not metrics:
        return "## Results\n\nNone recorded here."
    tables = []
    for probe, rows in metrics.items():
        shown = [name for name in SHOWN if any(name in values for values in rows.values())]
        head = f"| {_plain(probe)} probe | " + " | ".join(shown) + " |"
        rule = "|---" * (len(shown) + 1) + "|"
        lines = [
            f"| {_plain(name)} | "
            + " | ".join(f"{values[m]:.1f}" if m in values else "" for m in shown)
            + " |"
            for name, values in rows.items()
        ]
        tables.append("\n".join([head, rule, *lines]))
    note = (
        "Percent. Rows other than `pjepa` are controls: what the input and position alone give; "
        "`segment_mean`, `history` and `time` know the annotated boundaries."
    )
    return "## Results\n\n" + "\n\n".join(tables) + f"\n\n{note}"


def _limits(config: EncoderConfig, known: CardFacts) -> str:
    lines = []
    if _needs_segments(config):
        lines.append(
            "- It attends by annotated segments: without true boundaries, at use too, its "
            "features are not those that were measured."
        )
    if config.attention == "bidirectional":
        lines.append("- Every token sees the whole take: not for live use.")
    if known.features is not None:
        lines.append(f"- {_lookahead(known.features)}")
    lines.append("- It knows the procedures of its data; other procedures were not tried.")
    lines.append("- It inherits the licence and the consent terms of the videos it was trained on.")
    return "## Limits\n\n" + "\n".join(lines)


def _lookahead(stream: StreamInfo) -> str:
    if stream.provenance.whole_take:
        return "Lookahead: the rest of the take."
    return (
        f"Lookahead: up to {stream.provenance.lookahead_s:.2f} s on the takes it was measured on."
    )


def _architecture(config: EncoderConfig) -> str:
    rows = "\n".join(f"| {name} | {value} |" for name, value in config.model_dump().items())
    return f"## Architecture\n\n| | |\n|---|---|\n{rows}"


def _needs_segments(config: EncoderConfig) -> bool:
    return config.segments == "annotated" and config.uses_segments


def _plain(text: str) -> str:
    """Return text from data escaped for Markdown: one line, no markup, no table bars."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
