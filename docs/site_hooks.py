"""An mkdocs hook for pages of notebooks: no scripts from elsewhere (MathJax, Mermaid), and links to other notebooks' pages."""

import re
from typing import Any

SCRIPT = re.compile(r"<script\b[^>]*>.*?</script>", re.DOTALL)
ELSEWHERE = ("mathjax", "mermaid", "cdnjs.", "unpkg.")
NOTEBOOK_LINK = re.compile(r'href="([\w/-]+)\.ipynb(#[\w-]*)?"')


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """The content of a page as it is shown."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    html = SCRIPT.sub(lambda found: "" if any(word in found[0].lower() for word in ELSEWHERE) else found[0], html)
    return NOTEBOOK_LINK.sub(r'href="\1.html\2"', html)
