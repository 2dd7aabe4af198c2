"""The page in a real browser: silent, offline, and doing what it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import HOSTILE

pytestmark = pytest.mark.slow
SECTIONS = ["results", "timelines", "pair", "features", "classes", "training", "provenance"]


class Opened:
    """The page, and everything the browser complained about or asked for."""

    def __init__(self, context: Any, file: Path) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.set_default_timeout(0)  # a busy machine is slow, not wrong
        self.page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def track(self, place: int) -> Any:
        return self.painted(self.page.locator("#timelines .track:not(.axis) canvas").nth(place))

    def painted(self, canvas: Any) -> Any:
        """The canvas in view and drawn: timelines are painted a moment after they come close."""
        canvas.scroll_into_view_if_needed()
        self.page.wait_for_function("(c) => c.painted", arg=canvas.element_handle())
        return canvas

    def picture(self, place: int) -> str:
        return str(self.track(place).evaluate("(c) => c.toDataURL()"))

    def sticks_out(self) -> bool:
        """Whether the page is wider than its window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@contextmanager
def opening(browser: Any, file: Path, width: int = 1200, scheme: str = "light") -> Iterator[Opened]:
    """A page that must not have complained by the end; what is pointed at does not move."""
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page = Opened(context, file)
    yield page
    assert page.complaints == []
    context.close()


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    with opening(browser, report) as page:
        yield page


def test_loads_without_a_word_and_without_the_internet(opened: Opened, report: Path) -> None:
    for canvas in opened.page.locator("#timelines .track canvas").all():
        opened.painted(canvas)
    files = [url for url in opened.requests if not url.startswith("data:")]
    assert files == [report.as_uri()]
    sections = opened.page.locator("main > section").evaluate_all("all => all.map((s) => s.id)")
    assert sections == SECTIONS
    drawn = "(c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v)"
    canvases = opened.page.locator("#timelines .track canvas, .square canvas").all()
    assert len(canvases) > 10
    assert all(canvas.evaluate(drawn) for canvas in canvases)


def test_a_hostile_label_stays_text(opened: Opened) -> None:
    assert HOSTILE in opened.text(".legend")
    assert opened.page.locator("main script, main b:not(.bars .bar > b)").count() == 0
    assert opened.page.evaluate("document.scripts.length") == 2
    assert opened.page.locator("h4", has_text="../take|").count() > 0


def test_hovering_tells_class_time_and_score(opened: Opened) -> None:
    opened.track(1).hover(position={"x": 40, "y": 10})
    tip = opened.text("#tip")
    assert "raw: " in tip
    assert " to 0:" in tip
    assert ", score 0." in tip or ", score 1." in tip
    assert opened.text("#timelines .readout") == tip
    opened.track(0).hover(position={"x": 40, "y": 10})
    assert "ground truth: " in opened.text("#tip")
    assert "score" not in opened.text("#tip")
    opened.page.mouse.move(5, 5)
    assert not opened.page.locator("#tip").is_visible()


def test_clicking_shows_frames_of_that_time_if_there_is_a_video(opened: Opened) -> None:
    pictures = opened.page.locator("#timelines .take").first.locator(".frames .picture")
    take = opened.page.evaluate("DATA.timelines.takes.find((take) => take.frames).id")
    opened.page.get_by_placeholder("find a take").fill(take)
    opened.track(0).click(position={"x": 30, "y": 10})
    assert pictures.count() >= 1
    early = pictures.first.get_attribute("aria-label")
    image = pictures.first.evaluate("(p) => getComputedStyle(p).backgroundImage")
    assert image.startswith('url("data:image/jpeg')
    width = opened.track(0).bounding_box()["width"]
    opened.track(0).click(position={"x": width - 10, "y": 10})
    late = pictures.first.get_attribute("aria-label")
    assert early.startswith("Frame at 0:0")
    assert late > early
    take = opened.page.evaluate("DATA.timelines.takes.find((take) => !take.frames).id")
    opened.page.get_by_placeholder("find a take").fill(take)
    opened.track(0).click(position={"x": 30, "y": 10})
    assert "No pictures" in opened.text("#timelines .frames")


def test_the_keyboard_reaches_everything(opened: Opened) -> None:
    track = opened.track(1)
    track.focus()
    opened.page.keyboard.press("Home")
    first = opened.text("#timelines .readout")
    opened.page.keyboard.press("ArrowRight")
    second = opened.text("#timelines .readout")
    assert first.startswith("raw: ")
    assert second != first
    opened.page.keyboard.press("ArrowLeft")
    assert opened.text("#timelines .readout") == first
    opened.page.keyboard.press("End")
    assert opened.text("#timelines .readout") not in (first, second)
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("#timelines .take").first.locator(".frames *").count() > 0
    reachable = "[...document.querySelectorAll('button, select, input, summary, a, .scroll')]"
    assert opened.page.evaluate(f"{reachable}.every((e) => e.tabIndex >= 0)")


def test_the_legend_highlights_and_the_order_changes(opened: Opened) -> None:
    before = opened.picture(0)
    opened.page.locator(".legend button").nth(1).click()
    assert opened.picture(0) != before
    opened.page.get_by_text("Show all classes").click()
    assert opened.picture(0) == before
    first = opened.text("#timelines .take h4")
    opened.page.locator("#timelines select").select_option("worst")
    assert opened.text("#timelines .take h4") != first
    opened.page.get_by_placeholder("find a take").fill("nowhere")
    assert "No take has that in its name" in opened.text("#timelines")


def test_maps_colour_by_class_and_show_a_path(opened: Opened) -> None:
    canvas = opened.page.locator("#features .square canvas").first
    canvas.scroll_into_view_if_needed()
    pictures = {canvas.evaluate("(c) => c.toDataURL()")}
    for place, option in enumerate(("class", "0")):
        opened.page.locator("#features select").nth(place).select_option(option)
        pictures.add(canvas.evaluate("(c) => c.toDataURL()"))
    assert len(pictures) == 3
    key = opened.page.locator("#features .keys", has_text=HOSTILE)
    assert key.is_visible()
    opened.page.locator("#features select").first.select_option("time")
    assert not key.is_visible()


def test_curves_and_the_probe_over_epochs_are_drawn(opened: Opened) -> None:
    lines = opened.page.locator("#training polyline")
    before = lines.count()
    assert before == 3 + 3  # logged curves; the probe, raw and random
    assert opened.page.locator("#training polyline[stroke-dasharray='5 4']").count() == 2
    opened.page.locator("#training .keys button", has_text="random").click()
    assert lines.count() == before - 1


def test_two_experiments_side_by_side(browser: Any, compared: Path) -> None:
    with opening(browser, compared) as opened:
        assert opened.page.locator("#features figcaption", has_text=HOSTILE).count() == 2
        assert opened.page.locator("#takes .bars").count() > 0
        assert opened.page.locator("#classes .bars").count() > 0
        loss = opened.page.locator("#training figure").first
        loss.locator("button", has_text=HOSTILE).click()
        assert loss.locator("polyline").count() == 1
        assert opened.page.evaluate("document.scripts.length") == 2


@pytest.mark.parametrize("width", [360, 390, 800, 1400])
def test_nothing_sticks_out(browser: Any, report: Path, compared: Path, width: int) -> None:
    for file in (report, compared):
        with opening(browser, file, width) as opened:
            assert not opened.sticks_out()


def test_light_and_dark_follow_the_system_and_the_button(browser: Any, report: Path) -> None:
    shades, look = [], "getComputedStyle(document.body).backgroundColor"
    for scheme in ("light", "dark"):
        with opening(browser, report, scheme=scheme) as opened:
            assert opened.page.evaluate("document.documentElement.dataset.theme") == scheme
            shades.append(opened.page.evaluate(look))
            opened.page.locator("#theme").click()
            shades.append(opened.page.evaluate(look))
    light, turned_dark, dark, turned_light = shades
    assert light == turned_light != dark == turned_dark


def test_the_finding_is_the_first_thing_read(opened: Opened) -> None:
    assert "A linear probe names the right step for" in opened.text("header #headline")
    assert "data set x · 6 takes of the test split in 6 groups" in opened.text("header > div")
    beside = opened.page.locator("#results .beside").first.locator(":scope > div")
    chart, legend = (beside.nth(place).bounding_box() for place in range(2))
    assert chart["x"] + chart["width"] <= legend["x"]


def test_intervals_and_bars_lie_inside_their_axis(opened: Opened) -> None:
    """Every bar and interval line of the class gains is within its box, and can be seen."""
    boxes = """(all) => all.map((bar) => [...bar.children].map((c) => {
      const a = bar.getBoundingClientRect(), b = c.getBoundingClientRect();
      return [b.left >= a.left - 1 && b.right <= a.right + 1, c.tagName, b.height];
    })).flat()"""
    found = opened.page.locator("#classes .bars >> nth=0 >> .bar").evaluate_all(boxes)
    assert {tag for _, tag, _ in found} == {"B", "I", "U"}
    assert all(inside for inside, _, _ in found)
    assert all(height >= 4 for _, _, height in found)


def test_print_is_light_whole_and_not_clipped(browser: Any, report: Path) -> None:
    """Paper shows every table to its end, every strip painted, every fold open."""
    theme, folded = "document.documentElement.dataset.theme", "details:not([open])"
    with opening(browser, report, 704, "dark") as opened:
        page = opened.page
        page.emulate_media(media="print")
        page.wait_for_selector("html.printing")
        clipped = "(all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1).length"
        assert page.locator(".scroll, .legend, pre").evaluate_all(clipped) == 0
        assert not opened.sticks_out()
        assert page.locator(folded).count() == 0
        assert page.locator(".track canvas").evaluate_all("(all) => all.every((c) => c.painted)")
        assert page.evaluate(theme) == "light"
        look = "getComputedStyle(document.querySelector('.bars b')).printColorAdjust"
        assert page.evaluate(look) == "exact"
        assert not page.locator("nav").is_visible()
        page.emulate_media(media="screen")
        page.wait_for_selector("html:not(.printing)")
        assert page.evaluate(theme) == "dark"
        assert page.locator(folded).count() > 0


def test_tables_are_there_without_scripts(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("table").count() >= 5
    assert "need JavaScript" in page.inner_text("main")
    context.close()
