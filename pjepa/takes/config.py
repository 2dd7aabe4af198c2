"""`data`: where takes come from and how they are split."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pjepa.core.machine import MachineSection
from pjepa.core.section import Section
from pjepa.core.tables import MAX_GAP_S


class DemoConfig(Section):
    """The rendered bench-top world; how many takes, how long, and how they look."""

    takes: int = Field(100, ge=6)
    min_s: float = Field(40.0, gt=0)
    max_s: float = Field(90.0, gt=0)
    video_fps: int = Field(16, ge=1)
    video_size: int = Field(128, ge=32)
    val: float = Field(0.1, ge=0, lt=1)
    test: float = Field(0.25, gt=0, lt=1)

    @model_validator(mode="after")
    def ordered(self) -> DemoConfig:
        if self.min_s > self.max_s:
            raise ValueError(f"min_s {self.min_s} is greater than max_s {self.max_s}")
        if self.val + self.test >= 1:
            raise ValueError(f"val {self.val} + test {self.test} leaves nothing to train on")
        if self.video_size % 2:
            raise ValueError(f"video_size {self.video_size} is odd; H.264 needs an even size")
        return self


class EgoExo4DConfig(Section):
    """Fine-grained keystep recognition, ego RGB; `path` is the folder of the `egoexo` download."""

    path: str = "egoexo4d"
    videos: Literal["auto", "full", "448"] = "auto"  # auto: the downscaled file if it exists


class EgoProceLConfig(Section):
    """EgoProceL as FACT packages it: I3D features, labels per frame, one split."""

    path: str = "egoprocel"
    # Of the shipped features. None: measured against EgoProceL's own annotations (start and end
    # in seconds) where `path`/annotations holds them, else the extractor's 10.
    fps: float | None = Field(None, gt=0)


class Assembly101Config(Section):
    """Coarse segmentation; a recording gives an assembly and a disassembly take."""

    path: str = "assembly101"
    input: Literal["tsm", "video"] = "tsm"  # the shipped TSM features, or the recordings
    view: str = "C10119_rgb"
    test: bool = False  # the labels of test takes are withheld: they need segments of another kind


ArchiveSet = Literal[
    "assembly101", "egoprocel_fact", "egoprocel_pooled", "cholec80", "m2cai16", "lemon"
]


class ArchiveConfig(Section):
    """The authors' packed feature archives, as downloaded; `lemon` brings Cholec80's labels along.

    `protocol: release` also chooses as the release does: on EgoProceL's test split, which then is
    `val`, and on Cholec80's videos 33 to 40.
    """

    path: str = "pjepa_features"
    set: ArchiveSet = "assembly101"
    protocol: Literal["official", "release"] = "official"
    # First tokens kept of every background segment: 1024 in the release's training, 20000 in its
    # probes. Unlike the rest of the stream this looks at labels, of test takes too.
    background_cap: int | None = Field(None, ge=1)


class MstcnConfig(Section):
    """A folder `path`/`dataset` with `features/ groundTruth/ splits/ mapping.txt`; None: known by
    name.

    Known are 50salads, gtea and breakfast; any other (FACT's custom layout) has to say its rate.
    """

    path: str = "."
    dataset: str = "50salads"
    fps: float | None = Field(None, gt=0)
    time_first: bool | None = None  # features [T, D] as FACT's custom sets, or [D, T]
    background: str | None = None  # a class name; None: the class called background, if there is
    lookahead_s: float | None = Field(None, ge=0)  # how far ahead a shipped feature has seen
    train_labels: bool = False  # whether its extractor was trained on labels of the set


class FolderConfig(Section):
    """Own videos, and a file or folder of annotations: CSV, JSON, ELAN, WebVTT, Label Studio."""

    path: str = "videos"
    labels: str | None = "labels.csv"  # inside `path`; None: nothing is labelled
    tier: str | None = None  # of ELAN files; None: the only one that has annotations
    # Frames per second that frame numbers count at. None: the video's; Label Studio's as its
    # labelling configuration beside the export says.
    frame_rate: float | None = Field(None, gt=0)
    background: str | None = None
    splits: str | None = None  # inside `path`: {train,test}.split<fold>.bundle
    # Cross-validation by whole groups: how many folds, or `groups` to leave one out. `data.fold`
    # is the one that is tested.
    folds: Annotated[int, Field(ge=2)] | Literal["groups"] | None = None
    # shares of the labelled groups, drawn where the annotations name no split
    val: float = Field(0.0, ge=0, lt=1)
    test: float = Field(0.25, ge=0, lt=1)

    @model_validator(mode="after")
    def some_left(self) -> FolderConfig:
        if self.val + self.test >= 1:
            raise ValueError(f"val {self.val} + test {self.test} leaves nothing to train on")
        if self.splits is not None and self.folds is not None:
            raise ValueError("splits and folds: bundles give the folds, or groups do, not both")
        return self

    @property
    def folded(self) -> bool:
        return self.splits is not None or self.folds is not None


SourceName = Literal["demo", "egoexo4d", "egoprocel", "assembly101", "archive", "mstcn", "folder"]
SHIPPING = ("egoprocel", "archive", "mstcn")  # frame features instead of videos


class DataConfig(MachineSection):
    """The data source; each has a section of its own, with a `path` relative to the data root.

    `order: shuffled` keeps every segment of the demo and breaks its procedures (falsification).
    """

    purpose: ClassVar[str] = "Where takes come from and how they are split."
    tuned: ClassVar[tuple[str, ...]] = ("source", "seed", "order", "holdout", "fold", "missing")

    source: SourceName = "demo"
    seed: int = Field(0, ge=0)
    order: Literal["procedure", "shuffled"] = "procedure"
    holdout: float = Field(0.1, gt=0, lt=1)
    fold: int = Field(1, ge=1)  # of cross-validated sets; the others have one
    missing: Literal["fail", "skip"] = "fail"  # takes whose video or features are not there
    # Time stamps of a video that are further apart jump: a new recording begins.
    max_gap_s: float = Field(MAX_GAP_S, gt=0)
    # A CSV below the source's folder: take, and group, participant or recording. None: as named
    # by the data set, of which the surgical ones name no surgeon.
    groups: str | None = None
    demo: DemoConfig = DemoConfig()
    egoexo4d: EgoExo4DConfig = EgoExo4DConfig()
    egoprocel: EgoProceLConfig = EgoProceLConfig()
    assembly101: Assembly101Config = Assembly101Config()
    archive: ArchiveConfig = ArchiveConfig()
    mstcn: MstcnConfig = MstcnConfig()
    folder: FolderConfig = FolderConfig()

    @model_validator(mode="after")
    def meaningful(self) -> DataConfig:
        if self.order != "procedure" and self.source != "demo":
            raise ValueError(
                f"order {self.order} is an option of the demo; the source is {self.source}"
            )
        if self.groups is not None and self.source == "demo":
            raise ValueError("groups: the demo has groups of its own and no folder to read from")
        if self.fold != 1 and not self.folded:
            hint = "; set data.folder.folds" if self.source == "folder" else ""
            raise ValueError(f"fold {self.fold}: source {self.source} has one split, fold 1{hint}")
        return self

    def always_shown(self) -> tuple[str, ...]:
        return (*self.tuned, self.source)

    @property
    def folded(self) -> bool:
        """Return whether the source is cross-validated: `fold` chooses what is tested."""
        return self.source == "mstcn" or (self.source == "folder" and self.folder.folded)

    @property
    def ships_features(self) -> bool:
        """Return whether the source brings frame features, so that no video is encoded."""
        tsm = self.source == "assembly101" and self.assembly101.input == "tsm"
        return tsm or self.source in SHIPPING

    @property
    def path(self) -> str | None:
        """Return the source's folder under the data root; None for the demo."""
        return None if self.source == "demo" else getattr(self, self.source).path
