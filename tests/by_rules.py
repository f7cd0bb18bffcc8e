"""Makes tokens of texts by the files of an export, as a program without `flax_attn` would.

python tests/by_rules.py FOLDER < texts.json
"""

import html
import json
import re
import sys
from pathlib import Path


def preprocessed(text, rules):
    for rule in rules:
        if rule["rule"] == "lower":
            text = text.lower()
        elif rule["rule"] == "unescape":
            text = html.unescape(text)
        elif rule["rule"] == "replace":
            text = re.sub(rule["pattern"], rule["with"], text)
        else:
            text = " ".join(match[0] for match in re.finditer(rule["pattern"], text))
    return text


def tokens(text, folder, name="tokenizer.json"):
    note = json.loads((folder / "export.json").read_text())["texts"]
    described = note["tokenizers"][name]
    entries = json.loads((folder / name).read_text())["entries"]
    index = {entry: number for number, entry in enumerate(entries)}
    text = preprocessed(text, note.get("rules", []) + described.get("rules", []))
    parts = re.findall(described["pattern"], text)
    return [index.get(part, described["unknown"]) for part in parts]


if __name__ == "__main__":
    texts = json.load(sys.stdin)
    folder = Path(sys.argv[1])
    names = json.loads((folder / "export.json").read_text())["texts"]["tokenizers"]
    assert not {"flax", "flax_attn", "jax"} & sys.modules.keys()
    print(json.dumps({name: [tokens(text, folder, name) for text in texts] for name in names}))
