"""Simulated steps for TensorBoard: the graph by device and by time, scalars and pictures."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import socket
import time
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tf_placer.report.device_labels import device_labels
from tf_placer.report.pictures.run_pictures import step_pictures
from tf_placer.simulation.simulator import StepTrace
from tf_placer.simulation.step_report import step_report

__all__ = ["write_step_events"]

# TensorBoard shows this name for the traced run of the graph.
_TAG = "step"
_FILE_VERSION = "brain.Event:2"
_RGBA_COLORSPACE = 4


def write_step_events(
    directory: str | os.PathLike[str],
    graph_def: tf.compat.v1.GraphDef,
    steps: Mapping[str, StepTrace],
) -> None:
    """Writes each step as a run of TensorBoard.

    A run has the graph with every operation on its device, the duration of each operation in the
    step, and scalars: the step time, and for each device its busy time, copying time and peak
    memory. If matplotlib is installed, it also has pictures: the device of each part of the model,
    and the timeline of the step.

    Args:
        directory: gets a folder for each step, in which an event file is added.
        graph_def: the graph; operations of the steps have the names of its nodes.
        steps: by name, such as "original" and "found".

    Raises:
        OSError: an event file cannot be written.
    """
    end_secs = max((trace.step_secs for trace in steps.values()), default=0.0)
    for name, trace in steps.items():
        folder = pathlib.Path(directory, name)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = f"{time.time():.6f}.{socket.gethostname()}"
        path = folder / f"events.out.tfevents.{stamp}"
        try:
            with tf.io.TFRecordWriter(str(path)) as writer:
                for event in _events(graph_def, trace, end_secs):
                    event.wall_time = time.time()
                    writer.write(event.SerializeToString())
        except tf.errors.OpError as error:
            raise OSError(f"cannot write to {str(path)!r}: {error.message}") from error


def _events(
    graph_def: tf.compat.v1.GraphDef, trace: StepTrace, end_secs: float
) -> list[tf.compat.v1.Event]:
    graph = _set_devices(graph_def, trace).SerializeToString()
    times = tf.compat.v1.Event()
    times.tagged_run_metadata.tag = _TAG
    times.tagged_run_metadata.run_metadata = _run_metadata(trace).SerializeToString()
    return [
        tf.compat.v1.Event(file_version=_FILE_VERSION),
        tf.compat.v1.Event(graph_def=graph),
        times,
        tf.compat.v1.Event(summary=_scalars(trace)),
        *_images(trace, end_secs),
    ]


def _set_devices(graph_def: tf.compat.v1.GraphDef, trace: StepTrace) -> tf.compat.v1.GraphDef:
    """Puts the operations of a step on their devices."""
    names = [device.name for device in trace.problem.devices]
    devices = dict(
        zip(trace.problem.operation_names, trace.operation_devices.tolist(), strict=True)
    )
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(graph_def)
    for node in placed.node:
        if node.name in devices:
            node.device = names[devices[node.name]]
    return placed


def _run_metadata(trace: StepTrace) -> tf.compat.v1.RunMetadata:
    """Makes the metadata that a traced step of TensorFlow would return."""
    metadata = tf.compat.v1.RunMetadata()
    for device, known in enumerate(trace.problem.devices):
        there = metadata.step_stats.dev_stats.add(device=known.name)
        for operation in np.flatnonzero(trace.operation_devices == device).tolist():
            start_ns, end_ns = (
                round(float(secs[operation]) * 1e9) for secs in (trace.start_secs, trace.end_secs)
            )
            took_ns = end_ns - start_ns
            there.node_stats.add(
                node_name=trace.problem.operation_names[operation],
                all_start_micros=start_ns // 1000,
                op_end_rel_micros=round(took_ns / 1000),
                all_end_rel_micros=round(took_ns / 1000),
                all_start_nanos=start_ns,
                op_end_rel_nanos=took_ns,
                all_end_rel_nanos=took_ns,
            )
    return metadata


def _scalars(trace: StepTrace) -> tf.compat.v1.Summary:
    report, summary = step_report(trace), tf.compat.v1.Summary()
    labels = device_labels([device.name for device in report.devices])
    summary.value.add(tag="step_secs", simple_value=report.step_secs)
    for device in report.devices:
        for name in ("busy_secs", "copy_secs", "peak_bytes"):
            value = float(getattr(device, name))
            summary.value.add(tag=f"{name}/{labels[device.name]}", simple_value=value)
    return summary


def _images(trace: StepTrace, end_secs: float) -> list[tf.compat.v1.Event]:
    """Makes the pictures; none without matplotlib, an optional package."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    events = []
    for name, png in step_pictures(trace, end_secs).items():
        # The header of a PNG has its size.
        width, height = (int.from_bytes(png[start : start + 4]) for start in (16, 20))
        event = tf.compat.v1.Event()
        image = event.summary.value.add(tag=name).image
        image.width, image.height, image.colorspace = width, height, _RGBA_COLORSPACE
        image.encoded_image_string = png
        events.append(event)
    return events
