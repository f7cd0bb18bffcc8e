"""The navigation of the site: which pages stand under which heading, in which order.

The pages have none of it themselves, since it would be noise where they are read as files. A page
that is nowhere here is a warning of Sphinx, and so an error.
"""

from sphinx.application import Sphinx

PAGES = {  # under a page, headings with the pages below them
    "README": {
        "Learn": [
            "docs/course/index",
            "docs/build_your_own",
            "docs/glossary",
        ],
        "Use": [
            "docs/python",
            "docs/training",
            "docs/report",
            "docs/explorer",
            "docs/translation",
            "docs/language_models",
            "docs/published_models",
            "docs/serve",
            "docs/nnx",
            "docs/equinox",
            "docs/testing",
            "docs/scale-out",
            "docs/accelerators",
            "docs/reliability",
        ],
        "Mechanisms": [
            "docs/attention/attend",
            "docs/attention/masks",
            "docs/attention/scores",
            "docs/attention/normalizers",
            "docs/attention/self_attention",
            "docs/attention/multi_head",
            "docs/attention/positions",
            "docs/attention/rotary",
            "docs/attention/transformer",
            "docs/attention/todays_models",
            "docs/attention/linear",
            "docs/attention/pooling",
            "docs/attention/encoder_decoder",
            "docs/attention/local",
            "docs/attention/monotonic",
            "docs/attention/input_attention",
            "docs/attention/lens",
            "docs/attention/other_libraries",
        ],
        "Look up": [
            "docs/api/index",
            "docs/results",
            "docs/performance",
            "All pages </docs/index>",
        ],
        "Take part": ["CONTRIBUTING", "CHANGELOG", "SECURITY"],
    },
    "docs/course/index": {"Lessons": ["docs/course/[0-9]*"]},
}


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds to the source of a page the headings and pages below it."""
    for heading, pages in PAGES.get(page, {}).items():
        options = ":hidden:", ":glob:", f":caption: {heading}", ""
        entries = [name if "<" in name else f"/{name}" for name in pages]
        lines = ["```{toctree}", *options, *entries, "```"]
        source[0] += "\n\n" + "\n".join(lines) + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_navigation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
