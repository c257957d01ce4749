"""What the site takes from outside of docs/, so that nothing is written twice: README.md is its first page,
and CONTRIBUTING.md, CHANGELOG.md and the notebooks of examples/ are pages too. MkDocs calls what is here.

Pages link to each other as files of the repository, which is what people read there. On the site a link to a
file that is a page leads to that page, and one to any other file is its text alone (or leads to the
repository, once mkdocs.yml has a `repo_url`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {  # pages of the site by their file in the repository
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    **{
        f"examples/notebooks/{p.name}": f"notebooks/{p.name}" for p in ROOT.glob("examples/notebooks/*.ipynb")
    },
}
LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)


@event_priority(100)  # before the plugin that makes pages of notebooks
def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, uri in ELSEWHERE.items():
        if uri.startswith("notebooks/"):  # the plugin puts a page together from a directory and a name in it
            files.append(File(uri, str(ROOT / "examples"), config.site_dir, config.use_directory_urls))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    source = next((path for path, place in ELSEWHERE.items() if place == uri), f"docs/{uri}")
    parts = FENCE.split(markdown)
    return "".join(
        part if n % 2 else LINK.sub(lambda found: relink(found, source, uri, config.repo_url), part)
        for n, part in enumerate(parts)
    )


def relink(found: re.Match[str], source: str, uri: str, repository: str | None) -> str:
    """A link of the file `source`, as the page `uri` says it."""
    image, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if not target or "://" in target or target.startswith("mailto:"):
        return found[0]
    path = os.path.normpath(os.path.join(os.path.dirname(source), target))
    place = ELSEWHERE.get(path)
    if place is None and path.startswith("docs/"):
        place = path.removeprefix("docs/")
    if place is not None:
        return f"{image}[{text}]({os.path.relpath(place, os.path.dirname(uri) or '.')}{anchor})"
    if not (ROOT / path).exists():
        return found[0]  # MkDocs says that it is broken
    return f"[{text}]({repository.rstrip('/')}/blob/main/{path}{anchor})" if repository else text
