"""The models of the stack, loaded from the pipeline's outputs, and the segment rule for new videos.

An encoder trained on annotated segments has none in live use. Found segments then replace them, or
fixed ones where there are no training tokens to measure a threshold on. A note reports this,
because it differs from training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.section import ReaderName, SegmentChoice
from pjepa.core.tables import TAKES, Classes, read_classes, read_table
from pjepa.core.time import recordings, token_times
from pjepa.features.controls import representation_info
from pjepa.features.encoded import encoder_provenance
from pjepa.live.outlook import Outlook
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.segments import (
    FIT_TOKENS,
    FoundConfig,
    FoundParameters,
    SegmentRule,
    fit_threshold,
    take_segments,
)
from pjepa.patches.backbone import Backbone, BackboneFacts, load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.store import PatchInfo
from pjepa.pooler.stored import Pooler, folder_sha256, load_pooler
from pjepa.probes.base.config import skipped_reason
from pjepa.probes.base.registry import load_probe
from pjepa.probes.base.trained import TrainedProbe
from pjepa.probes.linear.probe import LinearProbe
from pjepa.select.familiar import Familiar, read_familiar
from pjepa.storage.reading import content_sha256, read_object
from pjepa.streams.provenance import SelectionLabels, StreamInfo
from pjepa.streams.stream import read_stream
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.materialise import stream_info
from pjepa.ui.console import InputError
from pjepa.ui.device import checked_device

SHORT_S = 2.0  # seconds of a live window by default, where training had longer ones
SEEN = {"raw": False, "pjepa": True}  # representation: does it need the encoder


@dataclass(frozen=True)
class LiveOptions:
    """Which models to use on new video, and how."""

    model: Path = Path("models")
    cell: Path = Path("results/probe/attentive-pjepa")
    window: int | None = None  # tokens of a live window; None: short
    as_trained: bool = False  # windows of training, whatever they cost in latency
    segments: SegmentChoice = "auto"
    tokens: int | None = None  # of a segment, on average
    training: Path = Path("data/tokens/stream.parquet")  # measures found segments
    takes: Path = Path("data/takes/takes.parquet")
    device: str = "cpu"
    reader: ReaderName = "auto"
    questions: Path = Path("results/questions")  # of `pjepa questions`, if it was run


@dataclass(frozen=True)
class FeatureModels:
    """Models that turn a video into features; `notes` list differences from training."""

    options: LiveOptions
    pooler: Pooler
    patches: PatchesConfig
    pooled: int  # steps that are pooled together
    encoder: ProcedureEncoder | None
    rule: SegmentRule
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Models(FeatureModels):
    """Models that turn frames into labels."""

    backbone: Backbone
    probe: LinearProbe | TrainedProbe
    classes: Classes
    familiar: Familiar | None  # what training tokens are like
    outlook: Outlook

    @cached_property
    def hashes(self) -> list[str]:
        """Return content hashes of pooler, probe, encoder and outlook."""
        parts = [self.options.model / "pooler", self.options.cell / "model"]
        parts += [self.options.model / "pjepa"] if self.encoder is not None else []
        return [content_sha256(part) for part in (*parts, *self.outlook.folders)]


def load_models(options: LiveOptions) -> Models:
    """Load backbone, pooler, encoder and probe, and check that they fit together."""
    _check_cell(options.cell)
    probe = load_probe(options.cell / "model")
    assert isinstance(probe, LinearProbe | TrainedProbe)
    classes = read_classes(options.cell / "model" / "classes.json")
    outputs = len(probe.bias) if isinstance(probe, LinearProbe) else probe.task.classes
    if len(classes.names) != outputs:
        raise InputError(
            f"{options.cell}/model/classes.json: {len(classes.names)} names, the probe has "
            f"{outputs} classes; they are from different runs"
        )
    representation = options.cell.resolve().name.partition("-")[2]
    if representation not in SEEN:
        raise InputError(
            f"{options.cell}: a probe of the representation {representation or '?'}; streams and "
            f"new videos have {' and '.join(SEEN)} (folders are named PROBE-REPRESENTATION)"
        )
    stack = load_feature_models(options, representation, probe.sight.to == "segment")
    width = stack.pooler.facts.width if stack.encoder is None else stack.encoder.config.width
    if len(probe.mean) != width:
        raise InputError(
            f"{options.cell}: the probe takes {len(probe.mean)} channels, there are {width}; it is "
            f"not from the run in {options.model}"
        )
    backbone = load_backbone(stack.patches)
    check_weights(backbone.facts, stack.pooler.facts.patches)
    familiar, outlook = read_familiar(options.model / "pjepa"), Outlook()
    if stack.encoder is not None:
        outlook = Outlook.load(stack.encoder, options.model / "pjepa", options.questions)
    return Models(
        **vars(stack), backbone=backbone, probe=probe, classes=classes, familiar=familiar,
        outlook=outlook,
    )  # fmt: skip


def load_feature_models(
    options: LiveOptions, representation: str, by_segment: bool = False
) -> FeatureModels:
    """Load pooler and encoder, and choose windows and segments for new videos.

    `by_segment`: what comes after needs segments too.
    """
    checked_device(options.device)
    encoder = None
    if SEEN[representation]:
        encoder = ProcedureEncoder.from_pretrained(options.model / "pjepa", options.device)
    pooler = load_pooler(options.model / "pooler", options.device)
    if encoder is not None and encoder.config.d_in != pooler.facts.width:
        raise InputError(
            f"{options.model}: the pooler gives {pooler.facts.width} channels, the encoder takes "
            f"{encoder.config.d_in}; they are from different runs"
        )
    patches, pooled, notes = live_windows(pooler.facts.patches, pooler.facts.window, options)
    rule, more = live_rule(encoder, by_segment, options)
    return FeatureModels(options, pooler, patches, pooled, encoder, rule, (*notes, *more))


def _check_cell(cell: Path) -> None:
    if why := skipped_reason(cell):
        raise InputError(
            f"{cell}: {why}; label some takes, then `pjepa data scan` and `dvc repro` "
            "(`pjepa extract --model` writes features without labels)"
        )
    if not (cell / "model").is_dir():
        others = sorted(model.parent.name for model in cell.parent.glob("*/model"))
        usable = [name for name in others if name.partition("-")[2] in SEEN]
        raise InputError(
            f"{cell}: no fitted probe; give --probe one of {cell.parent}/"
            f"{{{','.join(usable) or 'none there'}}}, or add the cell to params.yaml and run "
            "`dvc repro`"
        )


def check_weights(found: BackboneFacts, trained: PatchInfo) -> None:
    """Raise if the backbone is not the one the pooler was trained with."""
    if found.weights_id != trained.weights_id:
        raise InputError(
            f"{trained.backbone}: the pooler was made with weights {trained.weights_id}, found "
            f"{found.weights_id}; fetch the same file (docs/backbones.md)"
        )


def live_windows(
    info: PatchInfo, pooled: int, options: LiveOptions
) -> tuple[PatchesConfig, int, tuple[str, ...]]:
    """Return window settings, steps pooled together, and notes on differences."""
    fields = set(PatchesConfig.model_fields) & set(vars(info))
    settings = {name: getattr(info, name) for name in fields}
    settings |= {"window_scope": "take", "device": options.device, "reader": options.reader}
    trained, notes = PatchesConfig(**settings), []
    if info.window_scope == "segment":
        notes.append("windows run over the video; in training they stopped at annotated segments")
    if options.as_trained:
        return trained, pooled, tuple(notes)
    short = max(1, round(SHORT_S * trained.tokens_fps))
    steps = options.window or min(trained.steps, short)
    settings["frames_per_window"] = steps * trained.tubelet
    if trained.window_mode == "trailing":
        settings["window_stride"] = min(trained.window_stride, steps)
    patches = PatchesConfig(**settings)
    if steps != trained.steps or min(pooled, steps) != pooled:
        longest = max(trained.steps, pooled)
        notes.append(
            f"windows of {steps} tokens, {longest} in training; --as-trained waits "
            f"{longest / trained.tokens_fps:g} s for the same"
        )
    return patches, min(pooled, steps), tuple(notes)


def live_rule(
    encoder: ProcedureEncoder | None, by_segment: bool, options: LiveOptions
) -> tuple[SegmentRule, tuple[str, ...]]:
    """Return the segment rule, and notes on how it differs from training."""
    config = None if encoder is None else encoder.config
    block = options.tokens or (32 if config is None else config.block)
    if not (by_segment or (config is not None and config.uses_segments)):
        return SegmentRule("fixed", block), ()
    kind = options.segments
    if kind == "auto":
        if encoder is not None and encoder.config.segments != "annotated":
            return encoder.segment_rule(), ()
        kind = "found" if options.training.exists() else "fixed"
    rule = SegmentRule("fixed", block) if kind == "fixed" else _found_rule(config, options)
    if config is None or config.segments == kind:
        return rule, ()
    about = f"fixed ones of {block}" if kind == "fixed" else "ones found by change"
    return rule, (
        f"the encoder was trained on {config.segments} segments; {about} replace them, so results "
        f"can be worse than the report's (pjepa.segments={kind} trains on what is used here)",
    )


def _found_rule(config: EncoderConfig | None, options: LiveOptions) -> SegmentRule:
    """Return the rule of found segments; no label is read to measure its threshold."""
    if not options.training.exists():
        raise InputError(
            f"{options.training}: needed to measure where segments change; give --training, or "
            "--segments fixed"
        )
    mean = options.tokens or (32 if config is None else config.found_tokens)
    most = 4 * mean if config is None else max(config.found_max, mean)
    lengths, tokens = FoundConfig(mean, most), _training_tokens(options)
    std = np.concatenate(tokens).std(axis=0)
    std[std == 0] = 1.0
    found = FoundParameters(lengths, fit_threshold(tokens, lengths, std), std)
    return SegmentRule("found", found=found)


def _training_tokens(options: LiveOptions) -> Sequence[np.ndarray]:
    """Return the tokens of training takes, about as many as a threshold needs."""
    stream = read_stream(options.training)
    takes = list(stream.takes)
    if options.takes.exists():
        rows = read_table(options.takes, TAKES).to_pylist()
        train = {row["take_id"] for row in rows if row["split"] in ("train", "pretrain")}
        takes = [take for take in takes if take in train] or takes
    tokens: list[np.ndarray] = []
    while takes and sum(map(len, tokens)) <= FIT_TOKENS:
        tokens.append(stream.read(takes.pop(0)).features.astype(np.float32))
    return tokens


# Features of new videos with the models of a run, as `tokens` and `features` would write them.


def represented(
    stack: FeatureModels, tokens: np.ndarray, name: str, jumps_s: Sequence[float] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features [T, d] of a video's tokens [T, D], and its segments c(i) [T].

    No segment reaches across a jump of the time stamps.
    """
    facts = stack.pooler.facts
    times = token_times(len(tokens), facts.patches.tokens_fps * facts.per_step)
    recording = recordings(times, jumps_s)
    segments = take_segments(tokens, None, stack.rule, name, recording)
    if stack.encoder is None:
        return tokens, segments
    return stack.encoder.encode(tokens, segment=segments).float().cpu().numpy(), segments


def patch_features(
    stack: FeatureModels, patches: np.ndarray, jumps_s: Sequence[float] = ()
) -> np.ndarray:
    """Return the features [T, d] of a video's patches [steps, cells, width]; it may be cut."""
    tokens = stack.pooler.tokens(patches, jumps_s=jumps_s)
    return represented(stack, tokens, "the video", jumps_s)[0]


def features_info(stack: FeatureModels) -> StreamInfo:
    """Return the facts about the features: labels used upstream, boundaries, lookahead."""
    trained, encoder = stack.pooler.facts, stack.encoder
    free = replace(trained, scope="take", patches=replace(trained.patches, window_scope="take"))
    info = stream_info(free, TokensConfig())
    config = None if encoder is None else encoder.config
    annotated = config is not None and config.uses_segments and config.segments == "annotated"
    if trained.knows_boundaries or annotated:  # in training; none are known here
        seen = info.provenance.model_copy(update={"boundaries_train": "annotated"})
        info = info.model_copy(update={"provenance": seen})
    if config is None:
        return info
    used: dict[str, Any] = {}
    if config.uses_segments:
        used = {"segments": stack.rule.kind}
        if stack.rule.found is not None:
            used["found_max"] = stack.rule.found.config.max_tokens
        if config.attention == "clip_causal":
            used["block"] = stack.rule.block
    selection = read_object(stack.options.model / "pjepa/selection.json", "selection_labels")
    chosen: SelectionLabels = selection["selection_labels"]
    seen = encoder_provenance(info, config.model_copy(update=used), 0.0).with_selection(chosen)
    return representation_info("pjepa", info, config.width, seen)


def model_facts(stack: FeatureModels) -> dict[str, Any]:
    """Return which models made the features and with which segments, as JSON values."""
    pooler = {"kind": stack.pooler.facts.kind, "sha256": stack.pooler.facts.sha256}
    facts = {"pooler": pooler, "encoder": None, "segments": None, "notes": list(stack.notes)}
    if stack.encoder is None:
        return facts
    config, rule = stack.encoder.config, stack.rule
    encoder = {
        "sha256": folder_sha256(stack.options.model / "pjepa"),
        "attention": config.attention,
        "trained_on_segments": config.segments,
    }
    segments: dict[str, Any] = {"kind": rule.kind, "tokens": rule.block}
    if rule.found is not None:
        lengths = rule.found.config
        segments |= {"tokens": lengths.tokens, "max_tokens": lengths.max_tokens}
        segments["threshold"] = rule.found.threshold
    return facts | {"encoder": encoder, "segments": segments if config.uses_segments else None}
