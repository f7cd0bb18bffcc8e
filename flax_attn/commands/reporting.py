"""What `flax-attn report` writes."""

import argparse
import sys
from pathlib import Path

from flax_attn import tasks
from flax_attn.errors import escaped
from flax_attn.page.saving import check_output, write
from flax_attn.schema import require

STDOUT = Path("-")
OUTPUT = "-o"
ARRAYS = (".npz", ".npy")


def report(args: argparse.Namespace) -> list[Path]:
    """Writes the page and returns its path, or prints it.

    Everything is checked before anything is written. A report that is there stays if this fails.
    """
    if args.output != STDOUT:
        check_output(args.output, OUTPUT)
    if any(path.suffix.lower() in ARRAYS for path in args.runs):
        from flax_attn.page.weights import page_of_file

        require(len(args.runs) == 1, f"one file of weights alone, got {len(args.runs)} paths")
        return written(page_of_file(args.runs[0]), args.output)
    records = tasks.read_runs(args.runs)  # before jax is imported, which takes seconds
    from flax_attn.page.report import report as page
    from flax_attn.page.report import with_own_names

    records, models, notes = with_own_names(records), {}, {}
    if args.model:
        from flax_attn.commands.training import prepare_jax

        prepare_jax()
        from flax_attn.explore.showing import living

        models, notes = living(records)
    for name, note in notes.items():
        print(escaped(f"{name}: {note}"), file=sys.stderr)
    paths = written(page(records, models, notes=notes), args.output)
    if models:
        print("The page embeds the trained models; use --no-model to omit them.", file=sys.stderr)
    return paths


def written(text: str, path: Path) -> list[Path]:
    """Writes the page and returns its path, or prints it."""
    if path == STDOUT:
        sys.stdout.buffer.write(text.encode())
        return []
    write(text, path, OUTPUT)
    return [path]
