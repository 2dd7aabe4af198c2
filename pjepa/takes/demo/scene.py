"""Appearance of the bench: a closed fixture, things around it, a gloved hand at work.

Looks differ between takes (colours, light, camera, distractors) and never depend on the meaning of
a step: two steps of one primitive are drawn by the same code from the same kind of randomness.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

UNIT = 128  # all places below are on a 128 x 128 bench, scaled to the video's size
MARGIN = 8  # bench beyond the frame, for camera shake
Point = tuple[float, float]
Colour = tuple[int, int, int]

BIN, SLOT, KNOB, SCREW = (24.0, 30.0), (64.0, 52.0), (101.0, 66.0), (38.0, 80.0)
SPOUT, BUTTON, PLATE, TAP = (78.0, 22.0), (106.0, 104.0), (62.0, 96.0), (104.0, 26.0)
REST = (54.0, 124.0)


@dataclass(frozen=True)
class SceneLook:
    """Everything that is constant over a take."""

    bench: Colour
    box: Colour
    glove: Colour
    part: Colour
    light: np.ndarray  # [H, W, 1] gain
    flicker_hz: float
    shift: Point
    pace: float
    distractors: tuple[tuple[Point, float, Colour], ...]
    crawler: Colour
    phase: float


def _colour(rng: np.random.Generator, hue: float, spread: float, s: float, v: float) -> Colour:
    r, g, b = colorsys.hsv_to_rgb(
        (hue + rng.uniform(-spread, spread)) % 1.0,
        float(np.clip(s + rng.uniform(-0.12, 0.12), 0, 1)),
        float(np.clip(v + rng.uniform(-0.1, 0.1), 0, 1)),
    )
    return (int(255 * r), int(255 * g), int(255 * b))


def _light(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return the light of a lamp above the bench: a smooth gain field."""
    y, x = np.mgrid[0:size, 0:size] / size - 0.5
    angle, slope = rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.35)
    field = rng.uniform(0.8, 1.1) + slope * (x * np.cos(angle) + y * np.sin(angle))
    return field[..., None].astype(np.float32)


def draw_look(rng: np.random.Generator, size: int) -> SceneLook:
    """Return one take's bench, glove, light and clutter."""
    spots = [
        (rng.uniform(6, 122), rng.uniform(108, 122)),
        (rng.uniform(4, 18), rng.uniform(56, 100)),
    ]
    count = int(rng.integers(0, 3))
    return SceneLook(
        bench=_colour(rng, 0.09, 0.07, 0.25, 0.55),
        box=_colour(rng, 0.6, 0.06, 0.2, 0.4),
        glove=_colour(rng, rng.choice([0.03, 0.55, 0.33]), 0.03, 0.5, 0.85),
        part=_colour(rng, rng.uniform(0, 1), 0.0, 0.6, 0.8),
        light=_light(rng, size),
        flicker_hz=float(rng.uniform(0.05, 0.3)),
        shift=(float(rng.uniform(-3, 3)), float(rng.uniform(-3, 3))),
        pace=float(rng.uniform(0.8, 1.25)),
        distractors=tuple(
            (
                (float(x), float(y)),
                float(rng.uniform(3, 6)),
                _colour(rng, rng.random(), 0, 0.5, 0.6),
            )
            for x, y in spots[:count]
        ),
        crawler=_colour(rng, rng.random(), 0.0, 0.6, 0.7),
        phase=float(rng.uniform(0, 100)),
    )


class Brush:
    """A pen that draws in bench units on a canvas of any size."""

    def __init__(self, canvas: Image.Image, scale: float) -> None:
        self.pen, self.scale = ImageDraw.Draw(canvas), scale

    def _at(self, point: Point) -> Point:
        return ((point[0] + MARGIN) * self.scale, (point[1] + MARGIN) * self.scale)

    def disc(self, centre: Point, radius: float, fill: Colour) -> None:
        (x, y), r = self._at(centre), radius * self.scale
        self.pen.ellipse((x - r, y - r, x + r, y + r), fill=fill)

    def bar(self, a: Point, b: Point, width: float, fill: Colour) -> None:
        self.pen.line(
            (*self._at(a), *self._at(b)), fill=fill, width=max(1, int(width * self.scale))
        )

    def box(self, centre: Point, half: Point, fill: Colour) -> None:
        (x, y), (w, h) = self._at(centre), (half[0] * self.scale, half[1] * self.scale)
        self.pen.rectangle((x - w, y - h, x + w, y + h), fill=fill)

    def hand(self, at: Point, glove: Colour) -> None:
        """Draw a forearm from the near edge, a palm and a thumb."""
        elbow = (0.35 * at[0] + 0.65 * REST[0], UNIT + MARGIN + 4.0)
        self.bar(elbow, at, 9, glove)
        self.disc(at, 7.5, glove)
        self.disc((at[0] - 6, at[1] - 4), 3, glove)


def still_bench(look: SceneLook, size: int) -> Image.Image:
    """Return everything that does not move, on a canvas with a margin for camera shake."""
    scale = size / UNIT
    side = round((UNIT + 2 * MARGIN) * scale)
    canvas = Image.new("RGB", (side, side), look.bench)
    brush = Brush(canvas, scale)
    for y in range(-MARGIN, UNIT + MARGIN, 16):  # planks
        brush.bar((-MARGIN, y), (UNIT + MARGIN, y), 0.8, _shade(look.bench, 0.85))
    brush.box(BIN, (15, 13), _shade(look.bench, 0.6))
    for dx, dy in ((-7, -4), (0, 3), (7, -2)):
        brush.disc((BIN[0] + dx, BIN[1] + dy), 3, look.part)
    brush.box((64, 70), (26, 24), look.box)  # the fixture; its inside is never seen
    brush.box((64, 49), (12, 3), (20, 20, 24))  # its slot
    brush.disc(KNOB, 8, (70, 70, 76))
    brush.disc(BUTTON, 6, (150, 40, 40))
    brush.box(TAP, (9, 6), (120, 120, 126))
    for spot, radius, colour in look.distractors:
        brush.disc(spot, radius, colour)
    return canvas


def _shade(colour: Colour, gain: float) -> Colour:
    return (int(colour[0] * gain), int(colour[1] * gain), int(colour[2] * gain))


def _near(place: Point, t: float, reach: float = 1.5) -> Point:
    """Return a point near a place: a hand is never quite still."""
    return (place[0] + reach * np.sin(1.7 * t), place[1] + reach * np.cos(2.3 * t))


def _idle(brush: Brush, look: SceneLook, t: float) -> None:
    brush.hand(_near(REST, 0.3 * t, 3.0), look.glove)


def _bin(brush: Brush, look: SceneLook, t: float) -> None:
    way = 0.5 - 0.5 * np.cos(2.2 * t)
    at = (BIN[0] + 16 * way, BIN[1] + 14 * way)
    brush.hand(at, look.glove)
    brush.disc((at[0] + 2, at[1] - 5), 3.5, look.part)


def _slot(brush: Brush, look: SceneLook, t: float) -> None:
    at = (SLOT[0], SLOT[1] - 6 + 6 * np.sin(2.6 * t))
    brush.box((at[0], at[1] - 7), (7, 6), look.part)
    brush.hand((at[0] + 6, at[1] + 5), look.glove)


def _knob(brush: Brush, look: SceneLook, t: float) -> None:
    brush.hand(_near((KNOB[0] - 2, KNOB[1] + 8), t, 1.0), look.glove)
    angle = 1.2 * np.sin(3.0 * t)
    spoke = (9 * np.cos(angle), 9 * np.sin(angle))
    brush.disc(KNOB, 8, (70, 70, 76))
    brush.bar(
        (KNOB[0] - spoke[0], KNOB[1] - spoke[1]),
        (KNOB[0] + spoke[0], KNOB[1] + spoke[1]),
        3,
        (230, 230, 235),
    )


def _driver(brush: Brush, look: SceneLook, t: float) -> None:
    tip = (SCREW[0], SCREW[1] + 1.5 * np.sin(9 * t))
    brush.hand((tip[0] - 14, tip[1] - 8), look.glove)
    brush.bar(tip, (tip[0] - 9, tip[1] - 16), 3, (210, 210, 215))
    brush.bar((tip[0] - 9, tip[1] - 16), (tip[0] - 14, tip[1] - 26), 7, (215, 150, 20))


def _bottle(brush: Brush, look: SceneLook, t: float) -> None:
    tilt = 4 * np.sin(1.3 * t)
    neck = (SPOUT[0] - 8, SPOUT[1] + 8 + tilt)
    brush.bar(
        (SPOUT[0] + 14, SPOUT[1] - 4), (SPOUT[0], SPOUT[1] + 5 + 0.5 * tilt), 13, (60, 130, 200)
    )
    brush.bar((SPOUT[0], SPOUT[1] + 5 + 0.5 * tilt), neck, 5, (60, 130, 200))
    brush.hand((SPOUT[0] + 16, SPOUT[1] + 4), look.glove)
    for drop in range(3):
        fall = (1.4 * t + drop / 3) % 1.0
        brush.disc((neck[0] - 1, neck[1] + 4 + 16 * fall), 1.8, (120, 180, 240))


def _button(brush: Brush, look: SceneLook, t: float) -> None:
    push = max(0.0, float(np.sin(4.5 * t)))
    brush.hand((BUTTON[0] + 3, BUTTON[1] - 8 + 5 * push), look.glove)
    brush.disc((BUTTON[0], BUTTON[1] + 2), 5 - 1.5 * push, (190, 50, 50))


def _cloth(brush: Brush, look: SceneLook, t: float) -> None:
    at = (PLATE[0] + 18 * np.sin(2.8 * t), PLATE[1] - 4)
    brush.box(at, (12, 9), (225, 225, 205))
    brush.bar((at[0] - 12, at[1]), (at[0] + 12, at[1]), 2, (190, 190, 170))
    brush.hand((at[0] + 2, at[1] + 4), look.glove)


def _gauge(brush: Brush, look: SceneLook, t: float) -> None:
    at = _near((TAP[0] - 2, TAP[1] + 12), t, 1.0)
    brush.hand((at[0] + 6, at[1] + 10), look.glove)
    brush.disc(at, 10, (30, 30, 34))
    brush.disc(at, 8, (235, 235, 240))
    angle = 1.0 + 0.8 * np.sin(1.9 * t)
    brush.bar(at, (at[0] + 7 * np.cos(angle), at[1] - 7 * np.sin(angle)), 1.5, (200, 30, 30))


# In the order of PRIMITIVES.
_DRAW = (_idle, _bin, _slot, _knob, _driver, _bottle, _button, _cloth, _gauge)


class Camera:
    """A renderer of one take: bench, hand at work, passing clutter, shake, light, grain."""

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self.size, self.rng = size, rng
        self.look = draw_look(rng, size)
        self.bench = still_bench(self.look, size)
        self.shake = np.zeros(2)
        grain = rng.normal(0.0, 3.0, (8, size, size, 1))
        # Alike in all three colours, and stored for each: numpy is slow over an axis of three.
        self.grain = grain.astype(np.float32).repeat(3, axis=-1)
        self.light = self.look.light.repeat(3, axis=-1)

    def frame(self, primitive: int, t: float, index: int) -> np.ndarray:
        """Return one RGB frame uint8 [size, size, 3]; `t` seconds into the take."""
        canvas = self.bench.copy()
        brush = Brush(canvas, self.size / UNIT)
        _DRAW[primitive](brush, self.look, self.look.pace * t + self.look.phase)
        crawl = (18 * t + 40 * self.look.phase) % 400 - 20  # something passes by now and then
        brush.disc((crawl, 6 + 3 * np.sin(t)), 4, self.look.crawler)
        self.shake = 0.9 * self.shake + self.rng.normal(0.0, 0.35, 2)
        return self._exposed(canvas, t, index)

    def _exposed(self, canvas: Image.Image, t: float, index: int) -> np.ndarray:
        scale = self.size / UNIT
        offset = (MARGIN + np.clip(np.array(self.look.shift) + self.shake, -7, 7)) * scale
        x, y = round(offset[0]), round(offset[1])
        view = np.asarray(canvas, np.float32)[y : y + self.size, x : x + self.size]  # [H, W, 3]
        flicker = 1.0 + 0.06 * np.sin(2 * np.pi * self.look.flicker_hz * t + self.look.phase)
        lit = view * self.light
        lit *= np.float32(flicker)
        lit += self.grain[index % len(self.grain)]
        return lit.clip(0, 255, out=lit).astype(np.uint8)
