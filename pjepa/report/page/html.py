"""The report's own Markdown as HTML: headings, paragraphs, lists, tables, code, bold.

Everything that is not one of these marks is escaped, so a label like `<script>` stays text. This
reads what `pjepa.report.numbers.text` writes, not Markdown at large.
"""

from __future__ import annotations

import re
from html import escape

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
