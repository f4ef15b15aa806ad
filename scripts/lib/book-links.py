"""Follows the links between the pages of a built book: book-links.py FOLDER"""

import pathlib
import sys
import urllib.parse
from html.parser import HTMLParser

# Pages that mdBook makes itself: all pages in one, and what a wrong address shows.
MADE_PAGES = {"print.html", "404.html"}


class Page(HTMLParser):
    """The links of a page, and the places in it that a link can name."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = [path for path in sorted(root.rglob("*.html")) if str(path.relative_to(root)) not in MADE_PAGES]
    pages = {path: Page(path.read_text()) for path in files}
    followed, broken = 0, []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            followed += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            where = f"{path.relative_to(root)}: {link}"
            if not target.is_file() or not target.is_relative_to(root):
                broken.append(f"{where}: no such page")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{where}: no such place in the page")
    print(*broken, sep="\n", end="\n" if broken else "")
    print(f"{len(pages)} pages, {followed} links, {len(broken)} broken")
    sys.exit(bool(broken) or not followed)


main()
