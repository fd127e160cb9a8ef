"""Trackers for TensorBoard, MLflow and Weights & Biases."""
