"""The command `report`: makes a page, and pictures, of a search."""

from __future__ import annotations

import argparse
import pathlib

from tf_placer.cli.answer import print_output
from tf_placer.files import check_output

__all__ = ["DESCRIPTION", "add_arguments", "run"]

_DEFAULT_OUTPUT = "report.html"
# In every page, near its beginning.
_PAGE_START = b"<title>tf_placer: "
DESCRIPTION = (
    "Makes one HTML page that shows what a search found and why it is faster: the original against "
    "what was found, where each part of the model went, the step in time, what each device does, "
    "the candidates, the search over time, what bounds the step and what would help. The page "
    "needs no network."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument(
        "searched",
        metavar="RUN",
        help="directory of a search, as given to --log_dir of optimize or search; or the result "
        "in it",
    )
    parser.add_argument(
        "--output", help="where the page goes (default: report.html, unless --picture is given)"
    )
    parser.add_argument("--picture", help="where a picture of the placement goes (.png or .svg)")
    parser.add_argument(
        "--time_picture",
        help="where a picture of the step in time goes (.png or .svg)",
    )
    parser.add_argument(
        "--problem", help="of a result of `search` that was written elsewhere: its problem file"
    )


def run(args: argparse.Namespace) -> None:
    """Makes the page.

    Raises:
        ImportError: what it needs is not installed.
        OSError: a file cannot be read or written.
        ValueError: there is no search, or it is damaged.
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
    """Makes sure that the page replaces nothing that nobody has named, but for another page.

    Raises:
        OSError: there is something else, or it cannot be read.
    """
    path = pathlib.Path(_DEFAULT_OUTPUT)
    if path.exists() and _PAGE_START not in path.read_bytes():
        raise OSError(
            f"{_DEFAULT_OUTPUT!r} is there, and is no page of tf_placer: --output names another "
            "file, or this one if it may be replaced"
        )
