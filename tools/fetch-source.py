#!/usr/bin/env python3
"""Fetches a package's source archive unchanged: fetch-source.py NAME VERSION FILE. It uses the
index that pip is configured for. pip itself would build the package before it delivers the
archive."""

import html.parser
import os
import shutil
import sys
import urllib.parse
import urllib.request

from pip._internal.configuration import Configuration
from pip._internal.models.index import PyPI


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found += [value for name, value in attributes if name == "href" and value]


def index():
    configuration = Configuration(isolated=False)
    configuration.load()
    settings = dict(
        item
        for kind in configuration.items()
        for item in ([kind] if isinstance(kind[1], str) else kind[1].items())
    )
    return os.environ.get("PIP_INDEX_URL") or settings.get("global.index-url") or PyPI.simple_url


def main(name, version, file):
    page = f"{index().rstrip('/')}/{name}/"
    links = Links()
    with urllib.request.urlopen(
        urllib.request.Request(page, headers={"Accept": "text/html"}), timeout=60
    ) as answer:
        links.feed(answer.read().decode())
    wanted = f"{name}-{version}.tar.gz"
    for link in links.found:
        address = urllib.parse.urldefrag(urllib.parse.urljoin(page, link)).url
        if urllib.parse.urlparse(address).path.endswith("/" + wanted):
            with urllib.request.urlopen(address, timeout=60) as answer, open(file, "wb") as archive:
                shutil.copyfileobj(answer, archive)
            return
    sys.exit(f"{page} has no {wanted}")


main(*sys.argv[1:])
