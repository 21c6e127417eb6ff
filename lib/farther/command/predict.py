"""`farther predict`: a bundle's monitor over images, a video, a camera or a network stream."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from farther.command.interruption import say_stopping
from farther.command.output import next_step
from farther.command.project import argument, option
from farther.text.printable import printable
from farther.text.terminal import say, working


def predict(
    bundle: Annotated[Path, argument("BUNDLE", "Folder that `farther bundle` wrote.")],
    source: Annotated[
        str,
        argument(
            "SOURCE",
            "Image, folder, quoted pattern, video, camera number, or stream address (rtsp://…).",
        ),
    ],
    out: Annotated[Path, option("DIR", "Output folder.")] = Path("predicted"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results of an earlier prediction.")
    ] = False,
    no_pictures: Annotated[
        bool, typer.Option("--no-pictures", help="Write no annotated images or video.")
    ] = False,
    every: Annotated[int, option("N", "Take every n-th image.")] = 1,
    limit: Annotated[int | None, option("N", "Stop after n images.")] = None,
    window: Annotated[int, option("N", "Images per drift window.")] = 200,
    batch_size: Annotated[
        int | None, option("N", "Images per batch; by default 8, and 1 for live sources.")
    ] = None,
    max_pixels: Annotated[
        int | None, option("N", "Refuse images with more pixels; by default as the run did.")
    ] = None,
    device: Annotated[str, option("DEVICE", "cpu, cuda, cuda:1, mps, …")] = "auto",
) -> None:
    """Detect known and unknown objects with a bundle.

    Writes annotated pictures (or a video), the regions and scores as Parquet, COCO results, and
    drift: the shares of unknown detections and of rejected images over windows, compared with the
    ID validation split. An image is rejected if its uncertainty is above the bundle's threshold.
    Runs until the source ends or Ctrl-C (or SIGTERM) stops it; either way, all
    results so far are written. After an error nothing is, unless the source is
    a camera or a stream.

    \b
    Examples:
      farther predict deployed photos/
      farther predict deployed 'photos/*.jpg' --out found --no-pictures
      farther predict deployed street.mp4 --every 5
      farther predict deployed 0           # the first camera
      farther predict deployed rtsp://camera.local/stream --out gate
    """
    with working("starting"):  # which imports much
        from tqdm import tqdm

        from farther import detectors
        from farther.monitor import Bundle, Monitor
        from farther.monitor.predict import PredictSettings
        from farther.monitor.predict import predict as run
        from farther.monitor.sources import SourceSettings, open_source

    def log(line: str) -> None:
        tqdm.write(printable(line), file=sys.stderr)

    settings = PredictSettings(
        out=out,
        pictures=not no_pictures,
        batch_size=batch_size,
        window=window,
        overwrite=overwrite,
    )
    with working(f"opening {bundle} and {source}"):
        loaded = Bundle.load(bundle)
        detectors.get(loaded.info.detector.adapter)  # its packages are named before others
        settings.check()
        limit_of_run = loaded.info.reading.max_pixels
        reading = SourceSettings(every=every, limit=limit, max_pixels=max_pixels or limit_of_run)
        images = open_source(source, reading)
        monitor = Monitor(loaded, device)
    with stop_signal() as stop:
        summary = run(monitor, images, settings, log=log, stopped=stop.is_set)
    say(f"{summary}. Written: {out}")
    steps = []
    for result in (out / "pictures", out / "drift/index.html"):
        if result.exists():
            steps.append(f"open {result}")
    if steps:
        next_step(*steps)


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one ends the program at once.

    The first one also prints that the results so far are written.
    """
    stop = threading.Event()
    default_handlers: dict[int, Any] = {}

    def request_stop(number: int, frame: Any) -> None:
        stop.set()
        say_stopping(" the results so far are written; Ctrl-C again discards them")
        signal.signal(number, default_handlers[number])

    for stop_number in (signal.SIGINT, signal.SIGTERM):
        default_handlers[int(stop_number)] = signal.signal(stop_number, request_stop)
    try:
        yield stop
    finally:
        for number, handler in default_handlers.items():
            signal.signal(number, handler)
