"""One self-contained HTML file from sections of text and widgets: no internet, opens from disk.

Text is Markdown, escaped on its way to HTML. Widgets are empty boxes that the page's own script
fills from one block of JSON; the script writes names with `textContent`, never as HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

# The report's own Markdown as HTML: headings, paragraphs, lists, tables, code, bold.

INLINE = re.compile(r"\\(.)|`([^`]*)`|\*\*(.+?)\*\*|\*(.+?)\*|\[([^\]]+)\]\((#[\w-]+)\)")
SPLIT = re.compile(r"(?<!\\)\|")


def markdown_html(text: str) -> str:
    """Return blocks of our Markdown as HTML; pictures are left out."""
    blocks = [_block(block) for block in text.strip().split("\n\n")]
    return "\n".join(block for block in blocks if block)


def inline_html(text: str) -> str:
    """Return one line with `code`, **bold**, *italic*, [links](#inside) and escapes.

    The rest is text.
    """
    parts, last = [], 0
    for match in INLINE.finditer(text):
        parts.append(escape(text[last : match.start()]))
        literal, code, bold, italic, name, target = match.groups()
        if literal is not None:
            parts.append(escape(literal))
        elif code is not None:
            parts.append(f"<code>{escape(code)}</code>")
        elif bold is not None:
            parts.append(f"<strong>{inline_html(bold)}</strong>")
        elif italic is not None:
            parts.append(f"<em>{inline_html(italic)}</em>")
        else:
            parts.append(f'<a href="{escape(target)}">{escape(name)}</a>')
        last = match.end()
    return "".join([*parts, escape(text[last:])])


def _block(block: str) -> str:
    lines = block.strip().split("\n")
    heading = re.match(r"(#+) (.*)", block)
    if heading:
        depth = len(heading[1])
        return f"<h{depth}>{inline_html(heading[2])}</h{depth}>"
    if block.startswith("!["):
        return ""
    if block.startswith("|"):
        return _table(lines)
    if block.startswith("- "):
        items = "".join(f"<li>{inline_html(line.removeprefix('- '))}</li>" for line in lines)
        return f"<ul>{items}</ul>"
    return f"<p>{inline_html(' '.join(lines))}</p>" if block.strip() else ""


def _table(lines: list[str]) -> str:
    """Return a table that scrolls by itself on narrow screens.

    A row with one cell heads a group.
    """
    rows = [[cell.strip() for cell in SPLIT.split(line.strip()[1:-1])] for line in lines]
    header = "".join(f'<th scope="col">{inline_html(cell)}</th>' for cell in rows[0])
    body = []
    for row in rows[2:]:
        if row[0] and not any(row[1:]):
            span = f'<th scope="rowgroup" colspan="{len(row)}">{inline_html(row[0])}</th>'
            body.append(f'<tr class="group">{span}</tr>')
        else:
            cells = "".join(f"<td>{inline_html(cell)}</td>" for cell in row[1:])
            body.append(f'<tr><th scope="row">{inline_html(row[0])}</th>{cells}</tr>')
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>'
        f"<thead><tr>{header}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


SCRIPTS = ("base.js", "charts.js", "timelines.js", "maps.js")


@dataclass(frozen=True)
class Widget:
    """A box that the script fills: which kind, and the key of its data."""

    kind: str
    key: str


@dataclass(frozen=True)
class Folded:
    """Text as it is, or Markdown, shown on demand."""

    title: str
    text: str
    markdown: bool = False


@dataclass(frozen=True)
class Beside:
    """Parts next to each other where the screen is wide, one below the other elsewhere."""

    parts: Sequence[str | Widget | Folded]


Part = str | Widget | Folded | Beside  # a str is Markdown


@dataclass(frozen=True)
class PageSection:
    """One part of the page: Markdown and widgets in order."""

    name: str  # its address inside the page
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Page:
    """What the page says: title, a line below it, sections, the widgets' data, the finding."""

    title: str
    subtitle: str
    sections: Sequence[PageSection]
    data: Mapping[str, Any]
    headline: str = ""  # Markdown


def page_html(page: Page) -> str:
    """Return the whole page as text."""
    values = {
        "title": escape(page.title),
        "subtitle": escape(page.subtitle),
        "headline": f'<div id="headline">{markdown_html(page.headline)}</div>'
        * bool(page.headline),
        "style": _asset("page.css"),
        "links": "".join(
            f'<li><a href="#{escape(s.name)}">{escape(s.title)}</a></li>' for s in page.sections
        ),
        "body": "\n".join(_section_html(section) for section in page.sections),
        "data": script_json(page.data),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element: no `<`, so nothing can end it."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)  # ASCII
    return text.replace("<", "\\u003c")


def _section_html(section: PageSection) -> str:
    parts = [_part_html(part) for part in section.parts]
    name = escape(section.name)
    head = f'<h2 id="{name}-title">{escape(section.title)}</h2>'
    body = "\n".join([head, *parts])
    return f'<section id="{name}" aria-labelledby="{name}-title">\n{body}\n</section>'


def _part_html(part: Part) -> str:
    if isinstance(part, Widget):
        kind, key = escape(part.kind), escape(part.key)
        return f'<div class="widget" data-widget="{kind}" data-key="{key}"></div>'
    if isinstance(part, Folded):
        text = f'<pre tabindex="0">{escape(part.text)}</pre>'
        inside = markdown_html(part.text) if part.markdown else text
        return f"<details><summary>{escape(part.title)}</summary>{inside}</details>"
    if isinstance(part, Beside):
        columns = "".join(f"<div>{_part_html(each)}</div>" for each in part.parts)
        return f'<div class="beside">{columns}</div>'
    return markdown_html(part)


def _asset(name: str) -> str:
    return files("pjepa.report").joinpath("assets", name).read_text(encoding="utf-8")
