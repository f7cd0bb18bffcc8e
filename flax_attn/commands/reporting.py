"""What `flax-attn report` writes."""

import argparse
import os
import sys
from pathlib import Path

from flax_attn import kinds
from flax_attn.errors import UsageError, escaped
from flax_attn.files import check_writable, replacing
from flax_attn.runs.directory import check_no_file_of_run

STDOUT = Path("-")
SUFFIXES = (".html", ".htm")


def report(args: argparse.Namespace) -> list[Path]:
    """Writes the page and returns its path, or prints it.

    Everything is checked before anything is written. A report that is there stays if this fails.

    Raises:
        UsageError: a run that is not finished or is damaged, or an output that cannot be written.
    """
    output = check_output(args.output)
    # before jax is there, so that a wrong path is told at once
    records = [kinds.read(path) for path in args.runs]
    if args.model:
        from flax_attn.commands.training import prepare_jax

        prepare_jax()
        from flax_attn.explore.showing import page_of

        text = page_of(records)
    else:
        from flax_attn.page.report import report as page

        text = page(records)
    if args.output == STDOUT:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
    else:
        try:
            with replacing(output) as partial:
                partial.write_text(text, encoding="utf-8")
        except OSError as error:
            raise cannot_write(args.output, error) from error
    if args.model:
        print("the trained models are in the page (--no-model leaves them out)", file=sys.stderr)
    return [] if args.output == STDOUT else [args.output]


def cannot_write(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write -o {path} ({error.strerror}); choose another file")


def check_output(path: Path) -> Path:
    """The file that an output stands for: a link stays one.

    Raises:
        UsageError: it is no file that can be written.
    """
    shown, advice = escaped(str(path)), "choose another file"
    if path == STDOUT:
        return path
    if path.is_dir():
        raise UsageError(f"expected a file for -o, got the directory {shown}; add report.html")
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"expected -o with a name that ends in .html, got {shown}; {advice}")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"no directory {escaped(str(folder))} for -o; make it, or {advice}")
    check_no_file_of_run(path, "-o")
    output = Path(os.path.realpath(path))
    try:
        check_writable(output)
    except OSError as error:
        raise cannot_write(path, error) from error
    return output
