"""The command `report`: makes a page and pictures of a search."""

from __future__ import annotations

import argparse
import pathlib

from tf_placer.cli.answer import print_output
from tf_placer.files import check_output

__all__ = ["DESCRIPTION", "add_arguments", "run"]

_DEFAULT_OUTPUT = "report.html"
# Every page of tf_placer contains this.
_PAGE_MARK = b"<title>tf_placer: "
DESCRIPTION = (
    "Makes one HTML page that shows the placement that a search found and why it is faster: the "
    "comparison with the original, the device of each part of the model, the step over time, the "
    "load of each device, the candidates, the search over time, the limits of the step and the "
    "effect of other machines. The page needs no network."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "searched",
        metavar="RUN",
        help="log_dir of an `optimize` or `search`; or a result of `search`",
    )
    parser.add_argument(
        "--output", help="file for the page (default: report.html, unless a picture is asked for)"
    )
    parser.add_argument("--picture", help="file for a picture of the placement (.png or .svg)")
    parser.add_argument(
        "--time_picture",
        help="file for a picture of the step over time (.png or .svg)",
    )
    parser.add_argument(
        "--problem", help="problem file, for a result of `search` that is not in its log_dir"
    )


def run(args: argparse.Namespace) -> None:
    """Makes the page.

    Raises:
        ImportError: a library that the page needs is not installed.
        OSError: a file cannot be read or written.
        ValueError: there is no search, or its files are damaged.
    """
    from tf_placer.report.page.page import require_page_libraries, write_page
    from tf_placer.report.pictures.placement_picture import check_picture
    from tf_placer.report.pictures.run_pictures import write_placements, write_steps
    from tf_placer.runs.run_page import read_run_view

    require_page_libraries()
    pictures = [(args.picture, write_placements), (args.time_picture, write_steps)]
    for path, _ in pictures:
        if path is not None:
            check_picture(path, args.searched, args.problem)
    output = args.output
    if output is None and args.picture is None and args.time_picture is None:
        output = _DEFAULT_OUTPUT
        _check_default_output()
    if output is not None:
        check_output(output, args.searched, args.problem, args.picture, args.time_picture)
    view = read_run_view(args.searched, args.problem)
    if output is not None:
        write_page(view, output)
        print_output(f"page: {output}")
    for path, write in pictures:
        if path is not None:
            write(view, path)
            print_output(f"picture: {path}")


def _check_default_output() -> None:
    """Checks that the default output replaces no file other than a page.

    Raises:
        OSError: the file is no page, or cannot be read.
    """
    path = pathlib.Path(_DEFAULT_OUTPUT)
    if path.exists() and _PAGE_MARK not in path.read_bytes():
        raise OSError(
            f"{_DEFAULT_OUTPUT!r} exists, and is no page of tf_placer: name another file with "
            "--output, or this one to replace it"
        )
