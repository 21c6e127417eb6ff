"""The ONNX graph of a bundle: from the prepared image to boxes, classes, confidences, and the method's score."""

from farther.monitor.onnx.export import FILE, Decisions, write_graph

__all__ = ["FILE", "Decisions", "write_graph"]
