"""A look for every class: hue and pattern, distinct for over a hundred classes."""

from dataclasses import dataclass

HUES = (
    "#88ccee",
    "#cc6677",
    "#ddcc77",
    "#117733",
    "#aa4499",
    "#44aa99",
    "#882255",
    "#999933",
    "#332288",
)
PATTERNS = ("", "/", ".", "-", "\\", "|", "x")  # matplotlib's hatches; "" is plain
INKS = ("#1a1a1a", "#ffffff")
BACKGROUND, UNKNOWN = "#d9d9d9", "#ffffff"


@dataclass(frozen=True)
class ClassLook:
    """The colour of a class, the pattern on it, and the pattern's ink."""

    color: str
    pattern: str
    ink: str


def class_look(label: int, background: int | None) -> ClassLook:
    """Return the look of a class id: the same in every picture of a data set."""
    if label < 0:
        return ClassLook(UNKNOWN, "", INKS[0])
    if label == background:
        return ClassLook(BACKGROUND, "", INKS[0])
    place = label - (1 if background is not None and label > background else 0)
    rank, hue = divmod(place, len(HUES))
    if rank == 0:
        return ClassLook(HUES[hue], "", INKS[0])
    patterned = PATTERNS[1:]
    ink, pattern = divmod((rank - 1) % (len(patterned) * len(INKS)), len(patterned))
    return ClassLook(HUES[hue], patterned[pattern], INKS[ink])
